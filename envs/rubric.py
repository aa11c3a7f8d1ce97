"""Named, weighted rewards and metrics: of a turn, of a whole conversation, of all attempts at a task together."""

import asyncio
import hashlib
import importlib
import inspect
import json
import logging
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, get_args

from agar.envs import contract
from agar.envs.score_cache import ScoreCache
from agar.errors import AgarError, ConfigError, EnvError
from agar.ledger.codec import plain
from agar.tool_servers.background import in_task, in_thread
from agar.types import Message, Reward, TaskRow

logger = logging.getLogger(__name__)

Stage = Literal["turn", "trajectory", "group"]
SLOWEST = 8
"""How many of the slowest gradings a rubric remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is graded.

    Attributes:
        task: the task, its answers included.
        messages: everything said so far, the agent's latest message last.
        reward: the reward so far; of a whole attempt in the group stage.
        parts: its parts so far.
        meta: the `info` of the environment's latest step; in the group stage, the trace's `meta`. A cached score must
            not depend on it.
    """

    task: TaskRow
    messages: tuple[Message, ...]
    reward: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reply(self) -> str:
        """The text of the agent's latest message; empty where it has said nothing."""
        return next((message.text for message in reversed(self.messages) if message.role == "assistant"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that is looked at.

    Attributes:
        name: of the score, in `info["reward_parts"]` and the metrics.
        score: a function of a `Conversation`; in the group stage, of all conversations of a group, giving a score for
            each. It may be a coroutine function; one that is not runs in a thread.
        weight: what the score counts in the reward; 0 for a metric.
        stage: `turn`: after each turn; `trajectory`: at the end of an episode; `group`: when all attempts at a task
            have ended, before they go into a batch.
        cached: give a conversation that was graded before, or is being graded, the same score; for functions that are
            slow and pure.
        timeout_s: how long it may take.

    Raises:
        ConfigError: one of them is impossible.
    """

    name: str
    score: Callable[..., Any]
    weight: float = 1.0
    stage: Stage = "trajectory"
    cached: bool = False
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what could not be graded, or would not be, when it is written and not when it is used."""
        for field_name, expected, holds in (
            ("name", "a text that is not empty", isinstance(self.name, str) and bool(self.name.strip())),
            ("score", "a function of a Conversation", callable(self.score)),
            (
                "weight",
                f"a finite number of at most {contract.LARGEST_REWARD:g}, of either sign",
                _within(self.weight, -contract.LARGEST_REWARD, contract.LARGEST_REWARD),
            ),
            ("stage", f"one of {', '.join(get_args(Stage))}", self.stage in get_args(Stage)),
            ("cached", "True or False", isinstance(self.cached, bool)),
            ("timeout_s", "a finite number above 0", _within(self.timeout_s, math.ulp(0.0), sys.float_info.max)),
        ):
            if not holds:
                got = contract.shown(getattr(self, field_name))
                raise ConfigError(
                    f"criterion {contract.shown(self.name)}: {field_name}: expected {expected}, got {got}"
                )
        for number in ("weight", "timeout_s"):  # a Fraction is no `:g` in Python 3.11
            object.__setattr__(self, number, float(getattr(self, number)))


class Rubric:
    """Criteria that are graded together.

    A criterion that raises, takes too long or gives something that is no finite number is the environment's failure
    (`EnvError`): the episode is outside the statistics, not scored 0. Errors of agar's own that say by
    their class whose fault they are pass through.

    Args:
        criteria: with names of their own.

    Raises:
        ConfigError: there is none, or two have the same name, or one is something else.
    """

    def __init__(self, criteria: Iterable[Criterion]) -> None:
        self.criteria = tuple(criteria) if isinstance(criteria, Iterable) else (criteria,)
        for each in self.criteria:
            if not isinstance(each, Criterion):
                raise ConfigError(
                    f"a rubric: expected criteria, got {contract.shown(each)}: write Criterion(name=…, score=…)"
                )
        names = [criterion.name for criterion in self.criteria]
        if not names or len(names) != len(set(names)):
            raise ConfigError(f"a rubric needs criteria with names of their own, got {names}")
        self._cache = ScoreCache()
        self.slowest: list[tuple[float, str, str]] = []
        """The gradings that took longest, slowest first: seconds, criterion, task. One that takes half of its deadline
        is logged too."""

    @classmethod
    def named(cls, name: "Rubric | str") -> "Rubric":
        """A rubric, or the one that `module:attr` names.

        Raises:
            ConfigError: it cannot be imported, or is no rubric.
        """
        if isinstance(name, Rubric):
            return name
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f'rubric = {name!r} cannot be found ({error}): expected "module:attr"') from error
        if not isinstance(found, Rubric):
            raise ConfigError(f"rubric = {name!r} is a {type(found).__name__}: it must be an agar.envs.Rubric")
        return found

    def has(self, stage: Stage) -> bool:
        """Whether anything is graded at a stage."""
        return any(criterion.stage == stage for criterion in self.criteria)

    async def grade(self, stage: Literal["turn", "trajectory"], told: Conversation) -> Reward:
        """The reward of a turn or a whole conversation: weighted total, and the scores by name as its parts.

        Raises:
            EnvError: a criterion failed.
        """
        chosen = [criterion for criterion in self.criteria if criterion.stage == stage]
        scores = await _together(self._score(criterion, told) for criterion in chosen)
        return _reward(chosen, scores)

    async def grade_group(self, told: Sequence[Conversation]) -> list[Reward]:
        """What the group stage adds to each attempt.

        Raises:
            EnvError: a criterion failed, or did not give one score for each attempt.
        """
        if not told:
            return []
        chosen = [criterion for criterion in self.criteria if criterion.stage == "group"]
        rows = await _together(self._score(criterion, tuple(told)) for criterion in chosen)
        rows = [_row(criterion, scores, len(told)) for criterion, scores in zip(chosen, rows, strict=True)]
        return [_reward(chosen, [row[index] for row in rows]) for index in range(len(told))]

    async def _score(self, criterion: Criterion, told: Conversation | tuple[Conversation, ...]) -> Any:
        if not criterion.cached:
            return await self._timed(criterion, told)
        return await self._cache.get((criterion.name, _digest(told)), lambda: self._timed(criterion, told))

    async def _timed(self, criterion: Criterion, told: Conversation | tuple[Conversation, ...]) -> Any:
        began = time.monotonic()
        try:
            return await _call(criterion, told)
        finally:
            took_s = time.monotonic() - began
            task = (told[0] if isinstance(told, tuple) else told).task.key
            self.slowest = sorted([*self.slowest, (took_s, criterion.name, task)], reverse=True)[:SLOWEST]
            if took_s > criterion.timeout_s / 2:
                logger.warning("reward %r of task %s took %.1f s", criterion.name, task, took_s)


async def _together(scores: Iterable[Awaitable[Any]]) -> list[Any]:
    """All of them at once; the first failure is raised when all have ended, so that none is left running."""
    found = await asyncio.gather(*scores, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return list(found)


async def _call(criterion: Criterion, told: Any) -> Any:
    try:
        async with asyncio.timeout(criterion.timeout_s) as clock:
            return await in_task(_graded(criterion, told), name=f"agar-reward-{criterion.name}")
    except Exception as error:
        if clock.expired() and not isinstance(error, AgarError):
            raise EnvError(f"reward {criterion.name!r} gave no score within {criterion.timeout_s:g} s") from error
        raise contract.blamed(error, f"reward {criterion.name!r}") from error


async def _graded(criterion: Criterion, told: Any) -> Any:
    if inspect.iscoroutinefunction(criterion.score) or inspect.iscoroutinefunction(type(criterion.score).__call__):
        return await criterion.score(told)
    score = await in_thread(lambda: criterion.score(told), name=f"agar-reward-{criterion.name}")
    return await score if inspect.isawaitable(score) else score


def _within(value: Any, least: float, most: float) -> bool:
    """Whether this is a number within bounds."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    number: Any = value
    return bool(least <= number <= most)


def _row(criterion: Criterion, scores: Any, attempts: int) -> list[Any]:
    try:
        if isinstance(scores, Mapping | AbstractSet):  # whose order is not that of the attempts
            raise TypeError
        row = list(scores)
    except Exception as error:
        raise EnvError(
            f"group reward {criterion.name!r} gave {type(scores).__name__}: return a list with a score for each attempt"
        ) from error
    if len(row) != attempts:
        raise EnvError(f"group reward {criterion.name!r} gave {len(row)} scores for {attempts} attempts")
    return row


def _reward(criteria: Sequence[Criterion], scores: Sequence[Any]) -> Reward:
    parts, weighted = {}, []
    for criterion, given in zip(criteria, scores, strict=True):
        score = parts[criterion.name] = contract.checked_number(given, what=f"reward {criterion.name!r} gave")
        by_weight = f"reward {criterion.name!r} gave {score:g}, which by its weight of {criterion.weight:g} is"
        weighted.append(contract.checked_number(criterion.weight * score, what=by_weight))
    total = contract.checked_number(math.fsum(weighted), what=f"the rewards {', '.join(parts)} sum to")
    return Reward(total=total, parts=parts)


def _digest(told: Conversation | tuple[Conversation, ...]) -> str:
    every = told if isinstance(told, tuple) else (told,)
    text = json.dumps(
        [[plain(each.task), plain(each.messages), each.reward] for each in every], sort_keys=True, default=str
    )
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
