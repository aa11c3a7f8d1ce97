"""Multiple choice. The right choices are those of MMLU's format: a list of choices, and the index of the right one."""

import pytest

from agar.envs.rewards.choice import multiple_choice
from agar.errors import EnvError

CHOICES = ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B. green", "B"),
        ("B) green", "B"),
        ("**B**", "B"),
        ("The answer is B.", "B"),
        ("the answer is b", "B"),
        ("The answer is\n\nB", "B"),
        ("**Answer:** B", "B"),
        ("The answer is (B) because A is wrong", "B"),
        ("The correct answer is B, since option A ignores friction.", "B"),
        ("Answer: I believe it is B", "B"),
        ("Answer: B is right", "B"),
        ("Answer: C\nNo, wait. Answer: B", "B"),
        ("Let me think about it.\nB", "B"),
        ("I choose option B.", "B"),
        ("B\nIt is the colour of grass.", "B"),
        (r"\boxed{B}", "B"),
        (r"So it is $\boxed{\text{(B)}}$.", "B"),
        (r"First \boxed{A}. No: \boxed{B}", "B"),
        ("I think it is B.", "B"),
        ("It's B", "B"),
        ("B is the answer.", "B"),
        ("The answer must be B", "B"),
        ("Answer: B (green)", "B"),
        ("Green.", "B"),
        ("Answer: green", "B"),
        (r"\boxed{green}", "B"),
        ("A or B", None),
        ("The answer is A or B", None),
        ("The answer is A, B, C", None),
        ("Answer: A & B", None),
        ("Answer: A|B", None),
        ("Answer: A + B", None),
        ("Answer: A B", None),
        ("Answer: A (or B)", None),
        ("Answer: A (B)", None),
        ("Answer: A, or maybe B", None),
        ("Answer: B, or maybe a", None),
        ("Answer: A or b", None),
        ("Answer: A. Or B.", None),
        ("Answer: A. Answer: B.", None),
        ("Answer: ABC", None),
        ("Answer: B or D", None),
        ("Answer: I or B", None),
        (r"\boxed{A, B}", None),
        (r"\boxed{A} or \boxed{B}", None),
        (r"$\boxed{A}$, $\boxed{B}$", None),
        ("Answer: A or green", None),
        ("Answer: A (green)", None),
        ("Answer: red or green", None),
        ("A\nB", None),
        ("Answer: not B", None),
        ("Answer: A matter of taste", None),
        ("Answer: A ball, or B", None),
        ("answer is a matter of taste", None),
        ("A B C", None),
        ("I do not know", None),
        ("", None),
    ],
)
def test_what_is_chosen(told, reply, letter):
    for right, gold in (("A", "A"), ("B", "B"), ("B", 1), ("B", "green"), ("C", "(c)")):
        score = multiple_choice()(told(reply, answer=gold, choices=CHOICES))
        assert score == float(letter == right), (reply, gold)


@pytest.mark.parametrize(
    ("gold", "choices", "right"),
    [
        (1, ["0", "4", "2", "6"], "B"),  # as in MMLU's abstract algebra
        (2, ["3", "1", "0", "2"], "C"),
        (1, None, "B"),
        ("1", ["x", "y"], "B"),
        ("6", ["0", "4", "2", "6"], "D"),
        ("A", ["A", "B"], "A"),
        ("b", None, "B"),
        (["B", "C"], ["x", "y", "z"], "BC"),
        (25, [f"{n}c" for n in range(26)], "Z"),
    ],
)
def test_which_choice_is_right(told, gold, choices, right):
    score = multiple_choice()
    letters = [chr(ord("A") + place) for place in range(len(choices or "abcd"))]
    paid = [letter for letter in letters if score(told(letter, answer=gold, choices=choices))]
    assert "".join(paid) == right


@pytest.mark.parametrize(
    ("gold", "choices", "said"),
    [
        ("A", ["B", "A"], "could be A or B"),
        ("2", ["3", "1", "0", "2"], "could be C or D"),
        ("x", ["x", "x"], "could be A or B"),
        (7, ["x", "y"], "is none of the choices"),
        (-1, ["x", "y"], "is none of the choices"),
        ("E", ["x", "y"], "is none of the choices"),
        ("green apple", ["red", "green"], "is none of the choices"),
        ("green", None, "is none of the choices"),
        (True, ["x", "y"], "is none of the choices"),
        (1.0, ["x", "y"], "is none of the choices"),
        (None, ["x", "y"], "is none of the choices"),
        ([], ["x", "y"], "no right choice"),
        (26, [f"{n}c" for n in range(30)], "expected a list of 1 to 26 texts, got 30"),
        ("x", {"text": ["x", "y"], "label": ["A", "B"]}, "got a dict"),
    ],
)
def test_a_right_choice_that_is_none_or_could_be_two_is_an_error(told, gold, choices, said):
    with pytest.raises(EnvError, match=said):
        multiple_choice()(told("B", answer=gold, choices=choices))


def test_the_text_of_a_choice_is_compared_with_its_sign_and_may_begin_with_a_letter(told):
    score = multiple_choice()
    assert score(told("1", answer=0, choices=["-1", "2"])) == 0.0
    assert score(told("-1", answer=0, choices=["-1", "1"])) == 1.0
    assert score(told("Answer: B. A cell", answer=1, choices=["A ball", "A cell"])) == 1.0
    assert score(told("Answer: A cell", answer=0, choices=["A ball", "A cell"])) == 0.0
