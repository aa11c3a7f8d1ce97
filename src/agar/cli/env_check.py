"""`agar env check`: the conformance kit in a process of its own, so that it reports whatever the environment does.

The process sends every finding as it comes. Where it ends, or is not heard of any more, that is the finding of the
check that was running, and the checks after it run in another process.
"""

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from agar.envs.checker import LEVELS, Check, Look, Report, checks_of, name_of, run_check
from agar.envs.checks.subject import Subject
from agar.envs.contract import told
from agar.envs.isolation.channel import Channel
from agar.envs.isolation.guarded import GuardedProcess
from agar.envs.registry import spec
from agar.errors import ConfigError, DeadlineError, EnvError

CHECK_TIMEOUT_S = 120.0
TRAINABLE_TIMEOUT_S = 300.0
START_TIMEOUT_S = 120.0
_GRACE_S = 15.0
"""How much longer than its own deadline a check may keep its process silent."""
_MAX_BYTES = 16 << 20
_STDERR = 2


def check_apart(
    env: str, *, kwargs: Mapping[str, Any], levels: Sequence[str], check_timeout_s: float = CHECK_TIMEOUT_S
) -> Report:
    """Check an environment in another process.

    Args:
        env: its registered name; "module:Name-v0" imports the module first, there.
        kwargs: arguments of its constructor.
        levels: which levels to check, `L0` to `L5`.
        check_timeout_s: the deadline of each check but L5's.

    Returns:
        The report; a check that ended its process is in it.

    Raises:
        ConfigError: a level is unknown, or nobody registered the name.
    """
    planned = plan(levels, check_timeout_s)
    about = {"env": env, "kwargs": dict(kwargs), "levels": list(levels), "check_timeout_s": check_timeout_s}
    found: list[Check] = []
    while len(found) < len(planned):
        process = GuardedProcess("agar.cli.env_check", what=f"the check of {env}", output=_STDERR)
        started = False
        try:
            _start(process.channel, {**about, "done": len(found)})
            started = True
            for _, _, timeout_s in planned[len(found) :]:
                found.append(Check(**_heard(process.channel, timeout_s + _GRACE_S)))
        except (EOFError, DeadlineError, EnvError, json.JSONDecodeError, TypeError) as error:
            why = process.how_it_ended() if isinstance(error, EOFError) else f"{told(error)}; its process was ended"
            fallen = planned[len(found) : len(found) + 1] if started else planned[len(found) :]
            found += [Check(level=level, name=name_of(look), ok=False, message=why) for level, look, _ in fallen]
        finally:
            process.end()
    return Report(env=env, checks=tuple(found))


def plan(levels: Sequence[str], check_timeout_s: float) -> list[tuple[str, Look, float]]:
    """The checks of some levels, each with its level and deadline.

    Raises:
        ConfigError: a level is unknown.
    """
    from agar.rollout.checker import trainable

    unknown = sorted(set(levels) - {*LEVELS, "L5"})
    if unknown:
        raise ConfigError(f"unknown level {unknown[0]!r}: choose among {', '.join((*LEVELS, 'L5'))}")
    chosen = checks_of([level for level in levels if level != "L5"])
    planned = [(level, look, check_timeout_s) for level, look in chosen]
    return [*planned, *([("L5", trainable, TRAINABLE_TIMEOUT_S)] if "L5" in levels else [])]


def main(fd: int) -> None:
    """The process: run the checks that are left, and send each finding."""
    with closing(Channel(socket.socket(fileno=fd))) as channel:
        about = _heard(channel, START_TIMEOUT_S)
        planned = plan(about["levels"], about["check_timeout_s"])
        try:
            spec(about["env"])
        except ConfigError as error:
            return channel.send(json.dumps({"wrong": str(error)}).encode())
        except Exception as error:
            return channel.send(json.dumps({"broken": told(error)}).encode())
        channel.send(b"{}")
        subject = Subject(id=about["env"], kwargs=about["kwargs"])
        for level, look, timeout_s in planned[about["done"] :]:
            check = asyncio.run(run_check(level, look, subject, timeout_s))
            channel.send(json.dumps(asdict(check)).encode())
    return None


def _start(channel: Channel, about: Mapping[str, Any]) -> None:
    channel.send(json.dumps(about).encode(), timeout_s=START_TIMEOUT_S)
    answer = _heard(channel, START_TIMEOUT_S)
    if "wrong" in answer:
        raise ConfigError(answer["wrong"])
    if "broken" in answer:
        raise EnvError(f"{about['env']} cannot be imported: {answer['broken']}")


def _heard(channel: Channel, timeout_s: float) -> Any:
    try:
        return json.loads(channel.receive(max_bytes=_MAX_BYTES, timeout_s=timeout_s))
    except DeadlineError:
        raise DeadlineError(f"nothing was heard of it within {timeout_s:g} s") from None


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(int(sys.argv[1]))
    os._exit(0)  # a thread that a check has left behind does not keep it
