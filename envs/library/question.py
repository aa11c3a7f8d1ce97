"""Question-v0: one question of a task set, one answer, graded by a rubric.

A recipe gives it questions (`path`) and a rubric; by itself it asks for sums of two numbers below a hundred.
"""

from string import ascii_uppercase

from agar.envs.rewards.extract import gold_of
from agar.envs.rewards.maths import maths
from agar.envs.rubric import Conversation, Criterion, Rubric
from agar.envs.single_turn import SingleTurnEnv
from agar.envs.spaces import Observation
from agar.envs.tasks import GeneratedTasks, TaskSet, check_split
from agar.errors import EnvError
from agar.types import Message, Reward, TaskRow, Turn

SUMS = Rubric([Criterion(name="right", score=maths(symbolic=False))])
"""What the sums are graded by: the answer is the right number."""

_BELOW = 100
_HELDOUT = 5
"""One in this many sums belongs to the held-out split."""


class Question(SingleTurnEnv):
    """Asks the task's prompt, or `payload["messages"]` where there are any.

    Args:
        rubric: grades the answer by its turn and its trajectory criteria; or `module:attr` that names one. Its group
            stage is the rollout's to call.

    Raises:
        ConfigError: there is no such rubric.
    """

    def __init__(self, *, rubric: Rubric | str = SUMS) -> None:
        self.rubric = Rubric.named(rubric)

    def ask(self) -> Observation:
        """The question.

        Raises:
            EnvError: the task has neither a prompt nor messages.
        """
        return list(self._asked())

    async def grade(self, action: Turn) -> Reward:
        """The rubric's reward."""
        told = Conversation(task=self.task, messages=(*self._asked(), action.message()))
        turn, whole = await self.rubric.grade("turn", told), await self.rubric.grade("trajectory", told)
        return Reward(total=turn.total + whole.total, parts={**turn.parts, **whole.parts})

    def gold(self) -> str | None:
        """The task's answer, where it has one: the first of several; of choices, the letter of the one it numbers.

        Raises:
            EnvError: it is neither a text nor a number, nor a list of them.
        """
        answer = self.task.payload.get("answer")
        if answer is None:
            return None
        if self.task.payload.get("choices") and isinstance(answer, int) and 0 <= answer < len(ascii_uppercase):
            return ascii_uppercase[answer]
        return gold_of(Conversation(task=self.task, messages=()), "answer")[0]

    def _asked(self) -> tuple[Message, ...]:
        messages = self.task.payload.get("messages")
        if messages:
            return tuple(Message(role=message["role"], content=message["content"]) for message in messages)
        if not self.task.prompt:
            raise EnvError(f"task {self.task.key!r} asks nothing: name the column of its prompt (columns.prompt)")
        return (Message(role="user", content=self.task.prompt),)


def tasks(split: str) -> TaskSet:
    """Every sum of two numbers below a hundred, each in one split.

    Raises:
        ConfigError: the split is unknown.
    """
    wanted = check_split(split) == "heldout"
    places = [n for n in range(_BELOW * _BELOW) if (7 * (n // _BELOW) + n % _BELOW) % _HELDOUT == 0]
    if not wanted:
        places = sorted(set(range(_BELOW * _BELOW)) - set(places))

    def row(index: int) -> TaskRow:
        a, b = divmod(places[index], _BELOW)
        answer = {"answer": str(a + b)}
        return TaskRow(key=f"{split}/{a}+{b}", prompt=f"{a} + {b} = ?", payload=answer, split=split, env="Question-v0")

    return GeneratedTasks(row, size=len(places))
