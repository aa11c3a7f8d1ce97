"""The conformance check: is an environment fit to train in?

L0 the interface · L1 determinism · L2 the reward tells good from bad · L3 dishonest ways earn nothing · L4 failures are
attributed. L5 (trainable: every ledger invariant holds over its episodes) is the rollout's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agar.envs.checks import api, determinism, failures, hacks, rewards
from agar.envs.checks.subject import Fault, NotApplicable, Subject
from agar.envs.registry import spec
from agar.errors import AgarError, ConfigError, DeadlineError

logger = logging.getLogger(__name__)

LEVELS = ("L0", "L1", "L2", "L3", "L4")
"""The levels, in the order in which they are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    level: str
    """`L0` to `L5`."""
    name: str
    """What was looked at."""
    ok: bool
    """False where something must be fixed; True also where the check does not apply."""
    message: str
    """What was seen, or what to fix."""
    skipped: bool = False
    """True where the check does not apply; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the check found."""

    env: str
    """The environment."""
    checks: tuple[Check, ...]
    """One entry a check, in order."""

    @property
    def ok(self) -> bool:
        """True where nothing must be fixed."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{self.env}: {'fit to train in' if self.ok else 'needs work'}"]
        for check in self.checks:
            mark = "skip" if check.skipped else "ok" if check.ok else "FAIL"
            lines.append(f"  {check.level} {mark:4} {check.name}: {check.message}")
        return "\n".join(lines)


_CHECKS: tuple[tuple[str, Callable[[Subject], Awaitable[str]]], ...] = (
    ("L0", api.gymnasium_interface),
    ("L0", api.gymnasium_make),
    ("L0", api.spaces),
    ("L0", api.task_sets),
    ("L0", api.episodes_end),
    ("L1", determinism.fresh_environments),
    ("L1", determinism.used_environment),
    ("L1", determinism.another_process),
    ("L2", rewards.gold_is_best),
    ("L2", rewards.nothing_is_worst),
    ("L2", rewards.chance_earns_little),
    ("L3", hacks.texts),
    ("L3", hacks.commands),
    ("L3", hacks.way_out),
    ("L3", hacks.gold_survives),
    ("L4", failures.dead_sandbox),
    ("L4", failures.slow_tool),
    ("L4", failures.malformed_turns),
    ("L4", failures.closing),
)


def check_env(
    id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    levels: Sequence[str] = LEVELS,
    check_timeout_s: float = 120.0,
) -> Report:
    """Check an environment; from synchronous code (`acheck_env` from asynchronous).

    Args:
        id: its registered name; "module:Name-v0" imports the module first.
        kwargs: arguments of its constructor.
        levels: which levels to check.
        check_timeout_s: the deadline of each check.

    Returns:
        The report. What the environment raises is a finding in it, not an error.

    Raises:
        ConfigError: nobody registered the name, or a level is unknown.
    """
    return asyncio.run(acheck_env(id, kwargs=kwargs, levels=levels, check_timeout_s=check_timeout_s))


async def acheck_env(
    id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    levels: Sequence[str] = LEVELS,
    check_timeout_s: float = 120.0,
) -> Report:
    """`check_env`, from asynchronous code."""
    unknown = sorted(set(levels) - set(LEVELS))
    if unknown:
        raise ConfigError(f"unknown level {unknown[0]!r}: choose among {', '.join(LEVELS)}")
    spec(id)  # an unknown name is the caller's mistake, not a finding
    subject = Subject(id=id, kwargs=dict(kwargs or {}))
    chosen = [(level, check) for level, check in _CHECKS if level in levels]
    checks = [await run_check(level, check, subject, check_timeout_s) for level, check in chosen]
    return Report(env=id, checks=tuple(checks))


async def run_check(
    level: str, check: Callable[[Subject], Awaitable[str]], subject: Subject, timeout_s: float
) -> Check:
    """Run one check and say what came of it.

    Args:
        level: its level.
        check: gives what it saw, or raises `Fault`, `NotApplicable`, or what the environment raised.
        subject: the environment under check.
        timeout_s: its deadline.
    """
    name = check.__name__.replace("_", " ")
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            message = await check(subject)
    except NotApplicable as reason:
        return Check(level=level, name=name, ok=True, message=str(reason), skipped=True)
    except (Fault, AgarError) as fault:
        return Check(level=level, name=name, ok=False, message=str(fault))
    except Exception as error:  # the environment's own: it is the finding
        if isinstance(error, TimeoutError) and deadline.expired():
            error = DeadlineError(f"the check was not over within {timeout_s:g} s")
        logger.debug("%s %s raised", level, name, exc_info=error)
        return Check(level=level, name=name, ok=False, message=f"{type(error).__name__}: {error}")
    return Check(level=level, name=name, ok=True, message=message)
