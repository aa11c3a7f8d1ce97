"""The conformance check: is an environment fit to train in?

L0 the interface · L1 determinism · L2 the reward tells good from bad · L3 dishonest ways earn nothing · L4 failures are
attributed. L5 (trainable: every ledger invariant holds over its episodes) is the rollout's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from agar.envs.checks import api, determinism, failures, hacks, rewards
from agar.envs.checks.subject import Fault, NotApplicable, Subject
from agar.envs.registry import spec
from agar.errors import AgarError, ConfigError, DeadlineError
from agar.tool_servers.background import in_thread

logger = logging.getLogger(__name__)

_GRACE_S = 1.0
"""How long a check whose deadline has passed, or that was cancelled, may take to let go of what it holds."""

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


Look = Callable[[Subject], Awaitable[str]]
"""Gives what it saw, or raises `Fault`, `NotApplicable`, or what the environment raised."""

_CHECKS: tuple[tuple[str, Look], ...] = (
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
        The report. What the environment raises is a finding in it, not an error; one that ends its process (a crash,
        `os._exit`) ends the caller's. `agar env check` reports that too.

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
    chosen = checks_of(levels)
    spec(id)  # an unknown name is the caller's mistake, not a finding
    subject = Subject(id=id, kwargs=dict(kwargs or {}))
    checks = [await run_check(level, check, subject, check_timeout_s) for level, check in chosen]
    return Report(env=id, checks=tuple(checks))


def checks_of(levels: Sequence[str]) -> list[tuple[str, Look]]:
    """The checks of some levels, each with its level, in order.

    Raises:
        ConfigError: a level is unknown.
    """
    unknown = sorted(set(levels) - set(LEVELS))
    if unknown:
        raise ConfigError(
            f"unknown level {unknown[0]!r}: choose among {', '.join(LEVELS)} (and L5 of `agar env check`)"
        )
    return [(level, check) for level, check in _CHECKS if level in levels]


def name_of(check: Look) -> str:
    """What a check looks at, in words."""
    return str(check.__name__).replace("_", " ")


async def run_check(level: str, check: Look, subject: Subject, timeout_s: float) -> Check:
    """Run one check and say what came of it.

    It runs in a thread with an event loop of its own, so that whatever an environment blocks (its constructor, a step
    that Gymnasium takes, its tasks), the deadline holds; what still runs then is left behind. Cancelling this cancels
    the check there.

    Args:
        level: its level.
        check: what to run.
        subject: the environment under check.
        timeout_s: its deadline.
    """
    name = name_of(check)
    late = DeadlineError(f"the check was not over within {timeout_s:g} s")
    started: Future[Callable[[], object]] = Future()

    async def looked() -> str:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        started.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                return await check(subject)
        except TimeoutError as error:
            raise (late if deadline.expired() else error) from None

    try:
        running = in_thread(lambda: asyncio.run(looked()), name=f"agar-check-{name}")
        try:
            await asyncio.wait({running}, timeout=timeout_s + _GRACE_S)
        except asyncio.CancelledError:
            started.add_done_callback(_give_up)  # at once, or when it has come so far
            await asyncio.wait({running}, timeout=_GRACE_S)
            raise
        if not running.done():
            raise late
        message = running.result()
    except NotApplicable as reason:
        return Check(level=level, name=name, ok=True, message=str(reason), skipped=True)
    except (Fault, AgarError) as fault:
        return Check(level=level, name=name, ok=False, message=str(fault))
    except Exception as error:  # the environment's own: it is the finding
        logger.debug("%s %s raised", level, name, exc_info=error)
        return Check(level=level, name=name, ok=False, message=f"{type(error).__name__}: {error}")
    return Check(level=level, name=name, ok=True, message=message)


def _give_up(started: "Future[Callable[[], object]]") -> None:
    with contextlib.suppress(RuntimeError):  # its loop has ended: it is over
        started.result()()
