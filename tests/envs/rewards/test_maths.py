"""Mathematical answers."""

import os
import signal
import threading

import pytest

from agar.envs.rewards.maths import Verifier, equal, final_answer, maths
from agar.envs.rewards.worker import NoAnswer
from agar.errors import EnvError


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"so $x = \boxed{\frac{3}{4}}$", r"\frac{3}{4}"),
        ("5 + 5 = 10\n#### 10", "10"),
        ("First 3, then 4. The answer is 12.", "12"),
        ("The answer is 5 apples", "5 apples"),
        ("The final answer is:\n\n42\nBye.", "42"),
        ("Answer: **12**.", "**12**"),
        ("We get 3 + 4 = 7", "7"),
        ("It costs $1,250.50 in all.", "1,250.50"),
        ("none", None),
        ("The answer is", None),
    ],
)
def test_where_the_answer_stands(reply, answer):
    assert final_answer(reply) == answer


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("42", "42"), ("42.0", "42"), ("1,000", "1000"), ("$5$", "5"), ("1/2", "0.5"), (r"\frac{1}{2}", "0.5"),
        (r"\dfrac12", "1/2"), ("50%", "0.5"), (r"50\%", "1/2"), ("-3", "-3.00"), ("5 apples", "5"),
        ("7", r"\boxed{7}"), ("**12**", "12"),
        ("x", "x"), (r"\left(1,2\right)", "(1, 2)"),
    ],
)  # fmt: skip
def test_equal_as_text_or_number(said, right):
    assert equal(said, right)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("43", "42"), ("0.333", "1/3"), ("12 or 13", "12"), ("1 2 3", "2"), ("", "0"), ("50", "50%"), ("1/0", "0"),
        ("9" * 5000, "9"), ("--3", "3"),
    ],
)  # fmt: skip
def test_not_equal(said, right):
    assert not equal(said, right)


def test_the_reward(told):
    score = maths(symbolic=False)
    assert score(told("The answer is 12", answer="12")) == 1.0
    assert score(told("The answer is 13", answer=["11", "13"])) == 1.0
    assert score(told("no idea", answer="12")) == 0.0
    with pytest.raises(EnvError, match="no 'answer'"):
        score(told("12"))


@pytest.fixture(scope="module")
def verifier():
    pytest.importorskip("math_verify")
    made = Verifier(timeout_s=20.0)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_expressions(verifier):
    same = [
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"), ("(x+1)^2", "x^2+2x+1"), (r"2\pi", r"\pi \cdot 2"),
        ("[1,2)", "[1, 2)"), (r"\{1,2\}", r"\{2,1\}"), ("x=3", "3"),
    ]  # fmt: skip
    other = [(r"\sqrt{3}", r"\sqrt{2}"), ("x+1", "x+2"), ("(1,2)", "(2,1)"), ("", "x"), (r"\frac{", "x")]
    assert [pair for pair in same if not equal(*pair, verifier)] == []
    assert [pair for pair in other if equal(*pair, verifier)] == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_takes_for_ever_is_wrong_and_named_and_the_next_is_compared_again(verifier):
    hurried = Verifier(timeout_s=20.0)
    assert hurried.equal("x+1", "1+x")  # it has started
    (process,) = hurried._workers._free.queue
    os.kill(process._process.pid, signal.SIGSTOP)  # it is busy for ever
    hurried._workers.timeout_s = 0.2
    assert not hurried.equal("x+2", "2+x")
    assert hurried.undecided == {"timeout": 1}
    assert '["x+2", "2+x"]' in [about for _, about in hurried.slowest]
    hurried._workers.timeout_s = 20.0
    assert hurried.equal("x+1", "1+x")
    hurried.close()


def test_a_comparison_that_comes_to_nothing_is_counted_with_its_reason(monkeypatch):
    made = Verifier()
    for reason in ("died", "timeout"):

        def ask(pair, reason=reason):
            raise NoAnswer(reason)

        monkeypatch.setattr(made._workers, "ask", ask)
        assert not made.equal("x", "y")
        assert made.undecided[reason] == 1
    monkeypatch.setattr(made._workers, "ask", lambda pair: None)  # sympy raised
    assert not made.equal("x", "y")
    assert made.undecided == {"died": 1, "timeout": 1, "error": 1}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_threads_wait_for_each_other(verifier):
    found = {}

    def compare(n):
        found[n] = verifier.equal(f"x+{n}", f"{n}+x")

    threads = [threading.Thread(target=compare, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == dict.fromkeys(range(8), True)
