"""What an answer is worth: rubrics that a recipe names with `kwargs.rubric`."""

from agar.envs import Conversation, Criterion, Rubric
from agar.envs.rewards import exact_match, f1, matches
from agar.envs.rewards.extract import tagged

_ANSWER = tagged("answer")


def searched(told: Conversation) -> float:
    """How many searches were made."""
    return float(sum(len(message.tool_calls) for message in told.messages))


def rubric(*, gold: str = "answer", exact: float = 0.0, overlap: float = 0.0, form: float = 0.0) -> Rubric:
    """A rubric of the weights given.

    Args:
        gold: the entry of a task's payload with the right answer, or a list of right ones.
        exact: for the right answer, by SQuAD's rules.
        overlap: for the F1 of the words.
        form: for a reply that is nothing but a tagged answer.
    """
    return Rubric(
        [
            Criterion(name="exact", score=exact_match(gold, extract=_ANSWER), weight=exact),
            Criterion(name="f1", score=f1(gold, extract=_ANSWER), weight=overlap),
            Criterion(name="form", score=matches(r"<answer>[^<>]+</answer>"), weight=form),
            Criterion(name="searches", score=searched, weight=0.0),
        ]
    )


EXACT = rubric(exact=1.0)
"""1 for the right answer; F1, form and searches are reported."""
F1 = rubric(overlap=1.0)
"""For answers of several words, of which some may be right."""
SHAPED = rubric(exact=0.9, form=0.1)
"""A tenth for the form: for models that do not keep it by themselves."""
GOLDEN = rubric(gold="golden_answers", exact=1.0)
"""As `EXACT`, for the tasks of Search-R1."""
SHAPED_GOLDEN = rubric(gold="golden_answers", exact=0.9, form=0.1)
"""As `SHAPED`, for the tasks of Search-R1."""
