"""Answers that reasoning-gym would evaluate as Python must be data; right ones are read as ever."""

import json
import time
from pathlib import Path

import pytest

from agar.envs.adapters.readable import UNREADABLE, readable

pytest.importorskip("reasoning_gym")

import reasoning_gym

EVALUATED = [
    *("string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "countdown", "puzzle24"),
    *("polynomial_multiplication", "simple_integration", "intermediate_integration", "coin_flip"),
]
HOSTILE = [
    "[__import__('os').system('echo hacked > {mark}')]",
    "__import__('os').system('echo hacked > {mark}')",
    "[].__class__.__base__.__subclasses__()",
    "(lambda: open('{mark}', 'w').write('x'))()",
    "[open('{mark}', 'w') for _ in 'a']",
    "exec('1')",
    "S('open(0)')",
    "x.__class__",
    "f'{{open(0)}}'",
    "9**9**9",
    "9 ** (9 ** 9)",
    "((9**99)**99)**99",
    "9" * 200_000,
    "(" * 5_000,
    "99999999999999999999!",
    "1e999999999",
    "1e9999**99",
]


@pytest.mark.parametrize("name", EVALUATED)
def test_no_hostile_answer_is_evaluated_and_none_takes_long(name, tmp_path):
    data = reasoning_gym.create_dataset(name, size=4, seed=1)
    for said in HOSTILE:
        mark = tmp_path / "mark"
        answer = said.replace("{mark}", str(mark))
        began = time.process_time()
        if readable(name, answer, data[0]):
            data.score_answer(answer, data[0])
        assert not mark.exists(), answer
        assert time.process_time() - began < 10, answer[:80]


@pytest.mark.parametrize("name", EVALUATED)
def test_code_is_never_readable(name, tmp_path):
    entry = reasoning_gym.create_dataset(name, size=4, seed=1)[0]
    for said in HOSTILE[:9]:
        assert not readable(name, said, entry), said


@pytest.mark.parametrize("name", EVALUATED)
def test_right_answers_are_readable_and_unreadable_ones_score_as_wrong(name):
    data = reasoning_gym.create_dataset(name, size=40, seed=3)
    for index in range(40):
        entry = data[index]
        answer = entry["answer"] or entry["metadata"].get("example_answer") or entry["metadata"].get("expression")
        answer = answer if isinstance(answer, str) else json.dumps(answer)
        assert readable(name, answer.strip(), entry), answer
    assert data.score_answer(UNREADABLE, data[0]) <= 0.05


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("string_insertion", "['A', 'B']"),
        ("spiral_matrix", "[1, 2, 3]"),
        ("n_queens", "[['_', 'Q']]"),
        ("countdown", "(3 + 4) * 5 - 6/2"),
        ("puzzle24", "8 / (3 - 8 / 3)"),
        ("polynomial_multiplication", "-3*x**2 + 4*x*y - (x + 1)**2"),
        ("intermediate_integration", "exp(2*x)*sin(x)/5 + x**(3/2) + C"),
        ("simple_integration", "-5*X**2/2 + 0.5*X + C"),
        ("coin_flip", "3/8"),
        ("coin_flip", "3.05e-05"),
    ],
)
def test_other_ways_to_write_an_answer_are_readable(name, answer):
    assert readable(name, answer, {"answer": "", "metadata": {}})


def test_data_sets_that_do_not_evaluate_read_everything():
    assert readable("leg_counting", HOSTILE[0], {"answer": "4", "metadata": {}})


def test_nothing_else_of_reasoning_gym_evaluates_answers():
    """Where a new version evaluates more, this fails, and `readable` must know of it."""
    found = set()
    for path in Path(reasoning_gym.__file__).parent.rglob("*.py"):
        _, _, scoring = path.read_text().partition("def score_answer")
        scoring = scoring.partition("\n    def ")[0].partition("\nclass ")[0]
        if any(word in scoring for word in ("eval(", "exec(", "sympify(", "Fraction(", "parse_expr(")):
            found.add(path.stem)
    assert found - {"number_sorting"} == set(EVALUATED)
