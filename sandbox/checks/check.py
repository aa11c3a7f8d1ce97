"""What a check is, and how it says what is wrong."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agar.errors import AgarError
from agar.sandbox.base import ExecResult, Sandbox
from agar.sandbox.config import SandboxSpec


class Make(Protocol):
    """Makes a sandbox that has not started, as `agar.sandbox.create` does."""

    def __call__(self, spec: SandboxSpec, *, gateway: Path | None = None) -> Sandbox:
        """Make one."""
        ...


class Refused(Exception):
    """A check found that the backend, or this machine, openly lacks what it looks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check.

    Attributes:
        run: checks a fresh sandbox, or with `makes` is given what makes one.
        changes: settings of the sandbox's spec that it needs.
        real: False where a backend that only plays passes too.
        optional: whether a backend may refuse, with a typed error, what is checked.
        makes: whether `run` takes `(make, spec)` instead of a sandbox.
    """

    run: Callable[..., Awaitable[None]]
    changes: Mapping[str, Any] = field(default_factory=dict)
    real: bool = True
    optional: bool = False
    makes: bool = False

    @property
    def name(self) -> str:
        """What it checks, as a sentence without blanks."""
        return self.run.__name__


def expect(what: str, got: object, wanted: object) -> None:
    """Complain unless two values are equal.

    Raises:
        AssertionError: they are not.
    """
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, expected {wanted!r}")


def expect_that(what: str, holds: bool, got: object) -> None:
    """Complain unless something holds.

    Raises:
        AssertionError: it does not; the message shows `got`.
    """
    if not holds:
        raise AssertionError(f"{what}: got {got!r}")


async def expect_raises(kind: type[AgarError], what: str, call: Awaitable[object]) -> None:
    """Complain unless a call raises an error of a kind.

    Raises:
        AssertionError: it does not.
    """
    try:
        got = await call
    except kind:
        return
    raise AssertionError(f"{what} gave {got!r}, expected {kind.__name__}")


def lines(result: ExecResult) -> list[str]:
    """The lines of its output."""
    return result.stdout.splitlines()
