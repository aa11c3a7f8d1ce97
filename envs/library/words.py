"""Words-v0: find a word of five letters in six guesses; every guess tells which letters are right."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from agar.envs.base import Env, StepResult
from agar.envs.library.drawn import DrawnTasks, pick
from agar.envs.spaces import Observation
from agar.types import Turn

GUESSES = 6
"""How many guesses there are; a turn without a word of five letters is one too."""
_WORD = re.compile(r"(?<![a-z])[a-z]{5}(?![a-z])")
_RULES = (
    f"Find the word of five letters in {GUESSES} guesses. I answer each letter of a guess: + it stands there, ~ it "
    "stands elsewhere, . it does not occur (again)."
)


@cache
def all_words() -> tuple[str, ...]:
    """The words to be found."""
    return tuple(files("agar.envs.library").joinpath("words.txt").read_text("utf-8").split())


class Words(Env):
    """A hidden word; reward 1 for finding it."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Hide a word."""
        super().reset(seed=seed)
        self.task = tasks.given_or_drawn(options, self.np_random)
        self.guesses = 0
        return _RULES, {}

    def step(self, action: Turn) -> StepResult:
        """Answer the last word of five letters in the text."""
        self.guesses += 1
        hidden = str(self.task.payload["word"])
        found = _WORD.findall(action.text.lower())
        if found and found[-1] == hidden:
            return "Right.", 1.0, True, False, {}
        said = marks(found[-1], hidden) if found else "Say a word of five letters."
        if self.guesses == GUESSES:
            return f"{said}\nIt was {hidden}.", 0.0, True, False, {}
        return said, 0.0, False, False, {}

    def gold(self) -> Turn:
        """The word."""
        return Turn(text=str(self.task.payload["word"]))


def marks(guess: str, hidden: str) -> str:
    """A guess with a mark behind each letter; a letter is marked `+` or `~` as often as it occurs."""
    left = [theirs for ours, theirs in zip(guess, hidden, strict=True) if ours != theirs]
    answer = []
    for ours, theirs in zip(guess, hidden, strict=True):
        if ours == theirs:
            answer.append(f"{ours}+")
        elif ours in left:
            left.remove(ours)
            answer.append(f"{ours}~")
        else:
            answer.append(f"{ours}.")
    return " ".join(answer)


def draw(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A word."""
    return "", {"word": pick(rng, all_words())}


tasks = DrawnTasks("Words-v0", draw, train=4096, heldout=1024)
