"""The worker speaks lines, and ends with its owner."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_it_answers_each_line_and_ends_when_its_owner_is_gone():
    pytest.importorskip("math_verify")
    lines = b'["x+1", "1+x"]\n["x", "y"]\n["\\\\frac{", "1"]\n'
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "agar.envs.rewards.maths_worker"],
        input=lines, capture_output=True, timeout=55, check=True,
    )  # fmt: skip
    assert answer.stdout.split() == [b'"ready"', b"true", b"false", b"false"]
