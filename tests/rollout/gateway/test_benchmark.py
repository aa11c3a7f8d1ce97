import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "gateway.py"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_gateway_benchmark_runs_and_writes_its_numbers(tmp_path):
    out = tmp_path / "numbers.json"
    done = subprocess.run(
        [sys.executable, "-P", str(BENCHMARK), "--seconds", "0.4", "--rounds", "1", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(out.read_text())
    assert numbers["calls"] == 20
    assert numbers["direct_median_ms"] >= 200
    assert numbers["ratio"] > 0
    assert "ratio" in done.stdout
