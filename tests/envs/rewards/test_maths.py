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
        ("Answer: **12**.", "12"),
        ("**Answer:** 12", "12"),
        ("The answer is 12. I am sure.", "12"),
        ("The answer is 12. Or 13.", "12. Or 13"),
        ("The answer is not 12.", "not 12"),
        (r"The answer is $5$ and \boxed{", "$5$"),
        ("I think so.\nThe answer is 3 or the answer is 5", None),
        ("We get 3 + 4 = 7", "7"),
        ("So it is $1,250.50.", "$1,250.50"),
        ("Sum: 12", "12"),
        ("It is not 12", "not 12"),
        ("x <= 5", "x <= 5"),
        ("x = 3 or x = 5", None),
        (r"\boxed{5", None),
        (r"\boxed{3} or \boxed{5}", None),
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
        ("x", "x"), (r"\left(1,2\right)", "(1, 2)"), ("\N{MINUS SIGN}5", "-5"), ("1e3", "1000"),
        ("1.5E-2", "0.015"), ("+5", "5"), ("5 percent", "0.05"),
        (r"1\,000", "1000"), (r"1{,}000", "1000"), ("x = 5", "5"), (r"5\text{ cm}", "5"), ("5", r"5\,\text{cm}"),
        ("5 cm", r"5\text{ cm}"), (r"5^\circ", "5"), ("5 hours", "5 hour"),
    ],
)  # fmt: skip
def test_equal_as_text_or_number(said, right):
    assert equal(said, right)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("43", "42"), ("0.333", "1/3"), ("12 or 13", "12"), ("1 2 3", "2"), ("", "0"), ("50", "50%"), ("1/0", "0"),
        ("9" * 5000, "9"), ("--3", "3"), ("5 cm", "5 m"), ("5 cm^2", "5 cm"), ("$1$ $2$", "12"), (r"1\,2", "12"),
        ("5 cm", "5 meters"), ("5 inches", "5 min"), ("5 kg", "5 grams"), ("5 mph", "5 miles"), ("5 ft^2", "5 ft"),
        ("5 percent", "5"),        ("1e999999999", "1"), ("5...", "5.5"),
    ],
)  # fmt: skip
def test_not_equal(said, right):
    assert not equal(said, right)


@pytest.mark.parametrize(
    "spellings",
    [
        ("inch", "inches", "in", "in."), ("ft", "ft.", "foot", "feet"), ("mm", "millimeters", "millimetre"),
        ("cm", "centimeter", "centimetres"), ("km", "kilometers"), ("meters", "metre"), ("mg", "milligrams"),
        ("kg", "kilogram"), ("gram", "grams"), ("ml", "milliliters"), ("liter", "litres"), ("lb", "lbs", "pounds"),
        ("oz", "ounce"), ("min", "min.", "minute", "minutes"), ("mph", "miles per hour", "mile/hour"),
        ("person", "persons", "people"), ("child", "children"), ("square feet", "ft^2", "ft²", r"\text{ square ft}"),
        ("cubic cm", "cm^3", "cubic centimetres"), ("degrees", r"^\circ", "°"), ("hours", "hour"), ("apple", "apples"),
    ],
)  # fmt: skip
def test_a_unit_is_the_same_however_it_is_written_and_no_other(spellings):
    for said in spellings:
        assert equal(f"5 {said}", f"5 {spellings[0]}"), said
        assert equal(f"5 {spellings[0]}", f"5 {said}"), said
        assert equal(f"5 {said}", "5"), said
        assert not equal(f"5 {said}", "5 days"), said
        assert not equal(f"6 {said}", f"5 {spellings[0]}"), said


NOT_FIVE = [
    r"\boxed{sqrt(5)}", r"\boxed{5!}", r"\boxed{x^5}", r"\boxed{5π}", r"\boxed{5i}", r"\boxed{5x}", r"\boxed{log(5)}",
    r"\boxed{±5}", r"\boxed{>5}", r"\boxed{≤5}", r"\boxed{\approx 5}", r"\boxed{\lt 5}", r"\boxed{\neq 5}",
    r"\boxed{5²}", r"\boxed{5_8}", r"\boxed{5\text{ million}}", r"\boxed{\text{not } 5}", r"\boxed{5\%}",
    r"\boxed{$5$ or $6$}",    r"\boxed{6 \Rightarrow 5}", r"\boxed{5+}", r"\boxed{5..6}",
    "The answer is not 5.", "The answer is not $5$.",
    "The answer is 5 million", "The answer is $5$ million.", "The answer is minus 5", "The answer is 5 dozen",
    "The answer is 5. No, it is 6.", "The answer is half of 5", "It is 5 million.", "5 <= x", "It is not 5",
]  # fmt: skip


@pytest.mark.parametrize("reply", NOT_FIVE)
def test_a_reply_that_has_the_right_number_in_something_else_is_wrong(told, reply):
    assert maths(symbolic=False)(told(reply, answer="5")) == 0.0


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
def test_an_expression_that_math_verify_reads_in_part_is_wrong(verifier):
    assert [reply for reply in NOT_FIVE if (said := final_answer(reply)) and equal(said, "5", verifier)] == []
    zero = ["not 0", "cos(0)", r"\cos 0", "0!", "0 million", "log 0", "e^0"]  # a product of letters and 0 is 0
    assert [said for said in zero if equal(said, "0", verifier)] == []
    assert not equal("2221_4", "2221_3", verifier)
    assert not equal("5 m", r"5\text{ cm}", verifier)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_expressions_that_are_a_number(verifier):
    same = [
        (r"\frac{10}{2}", "5"), ("sqrt(25)", "5"), ("2+3", "5"), ("5!", "120"), (r"1 \times 10^3", "1000"),
        ("2π", r"2\pi"), (r"\frac{10}{2}\text{ cm}", "5 cm"), ("(-∞, 5]", r"(-\infty, 5]"),
        ("ab+ac", "a(b+c)"), (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\\frac{4}{2}\end{pmatrix}"),
    ]  # fmt: skip
    assert [pair for pair in same if not equal(*pair, verifier)] == []


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
