"""The data sets of reasoning-gym, each as an environment of one question: `reasoning_gym/leg_counting-v0`.

Importing this module registers all of them: `agar.make("agar.envs.adapters.reasoning_gym:reasoning_gym/sudoku-v0")`.
Its scores are reasoning-gym's own, between 0 and 1.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agar.envs.adapters.readable import UNREADABLE, readable
from agar.envs.registry import register
from agar.envs.rewards.extract import tagged
from agar.envs.single_turn import SingleTurnEnv
from agar.envs.spaces import Observation
from agar.envs.tasks import GeneratedTasks, TaskSet, check_split
from agar.errors import ConfigError, MissingExtraError, to_install
from agar.types import TaskRow, Turn

try:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"the data sets of reasoning-gym need the package reasoning-gym ({error}): {to_install('gyms')}"
    ) from error

SIZES = {"train": 65_536, "heldout": 4_096}
"""Tasks in each split, where the data set has as many."""

_SEEDS = {"train": 0, "heldout": 1_000_000}  # task i is drawn from seed + i, so the splits share no seed
_SMALLER = 8
_tagged = tagged("answer")
_GOLD = ("possible_answer", "example_answer", "example_correct_answer")
"""Where a data set whose answer is not unique keeps one that is right."""


class ReasoningGym(SingleTurnEnv):
    """A question of one data set; the reward is the data set's own score of the answer.

    The answer is what stands in the last `<answer>…</answer>`, or else the whole text.
    """

    def __init__(self, *, dataset: str, config: Mapping[str, Any] | None = None) -> None:
        """Take a data set.

        Args:
            dataset: its name.
            config: its own settings (sizes, difficulty); the tasks of the registered split keep the default ones'
                prompts, so give these to `register` together with `ReasoningTasks` of the same.
        """
        self.dataset, self.config = dataset, dict(config or {})

    def ask(self) -> Observation:
        """The question, and where the answer belongs."""
        return f"{self._entry()['question']}\n\nGive the final answer as <answer>…</answer>."

    def grade(self, action: Turn) -> float:
        """The data set's score."""
        found, entry = _tagged(action.text), self._entry()
        answer = (action.text if found is None else found).strip()
        if not readable(self.dataset, answer, entry):
            answer = UNREADABLE
        return float(self._data().score_answer(answer, entry))

    def gold(self) -> str | None:
        """The data set's own answer; None where it keeps none."""
        entry = self._entry()
        answers = [entry["answer"], *(entry["metadata"].get(name) for name in _GOLD)]
        answer = next((answer for answer in answers if answer is not None), None)
        if answer is None:
            return None
        return f"<answer>{answer if isinstance(answer, str) else json.dumps(answer)}</answer>"

    def _data(self) -> Any:
        return data_of(self.dataset, self.task.split, json.dumps(self.config, sort_keys=True))

    def _entry(self) -> Mapping[str, Any]:
        entry: Mapping[str, Any] = self._data()[int(self.task.payload["index"])]
        return entry


class ReasoningTasks:
    """The task source of one data set."""

    def __init__(self, env: str, dataset: str, config: Mapping[str, Any] | None = None) -> None:
        """Make the source of the environment `env`."""
        self.env, self.dataset, self.config = env, dataset, dict(config or {})

    def __call__(self, split: str) -> TaskSet:
        """The task set of a split.

        Raises:
            ConfigError: the split is unknown, or the data set does not take the settings.
        """
        data = data_of(self.dataset, check_split(split), json.dumps(self.config, sort_keys=True))

        def make_row(index: int) -> TaskRow:
            payload = {"index": index, "seed": _SEEDS[split] + index}
            return TaskRow(key=f"{split}/{index}", payload=payload, split=split, env=self.env)

        return GeneratedTasks(make_row, size=len(data))


@lru_cache(maxsize=256)
def data_of(dataset: str, split: str, config: str) -> Any:
    """A data set of a split; `config` is the JSON of its settings.

    Raises:
        ConfigError: there is no such data set, or it does not take the settings.
    """
    size, why = SIZES[split], ""
    while size >= 64:  # a few data sets refuse to be as large
        try:
            return reasoning_gym.create_dataset(dataset, size=size, seed=_SEEDS[split], **json.loads(config))
        except (ValueError, TypeError, AssertionError) as error:
            why = why or str(error)
            size //= _SMALLER
    raise ConfigError(f"reasoning-gym cannot make {dataset!r} with {config}: {why}")


def names() -> list[str]:
    """The data sets, sorted; those that only combine others are left out."""
    return sorted(set(DATASETS) - {"composite"})


for _name in names():
    _id = f"reasoning_gym/{_name}-v0"
    register(_id, ReasoningGym, max_turns=1, kwargs={"dataset": _name}, tasks=ReasoningTasks(_id, _name))
