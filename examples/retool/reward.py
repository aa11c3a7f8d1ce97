"""What an answer is worth: rubrics that a recipe names with `kwargs.rubric`."""

from agar.envs import Conversation, Criterion, Rubric
from agar.envs.rewards import maths


def cells(told: Conversation) -> float:
    """How many cells were run."""
    return float(sum(len(message.tool_calls) for message in told.messages))


def _rubric(*, symbolic: bool, workers: int) -> Rubric:
    return Rubric(
        [
            Criterion(name="right", score=maths(symbolic=symbolic, workers=workers)),
            Criterion(name="cells", score=cells, weight=0.0),
        ]
    )


MATHS = _rubric(symbolic=True, workers=4)
"""1 for the right answer, as text, as an exact number or as an expression (`math-verify`); the cells are reported."""
NUMBERS = _rubric(symbolic=False, workers=1)
"""The same without expressions, for answers that are numbers."""
