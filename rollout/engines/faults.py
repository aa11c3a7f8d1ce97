"""What can go wrong in a fake engine, on purpose."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["drop", "error", "hang", "die", "stale"]


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault, used up by the next requests that match it.

    Attributes:
        kind: `drop` closes the connection without a reply; `error` answers HTTP 500; `hang` never answers; `die` stops
            the whole server; `stale` answers a weight update with success and keeps the old weights.
        path: the endpoint that it strikes.
        after_tokens: strike a `/generate` only after so many tokens.
        count: how many requests it strikes.
    """

    kind: FaultKind
    path: str = "/generate"
    after_tokens: int = 0
    count: int = 1


class Faults:
    """The faults that are still to come."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Schedule a fault."""
        self._pending.append(fault)

    def take(self, path: str) -> Fault | None:
        """The next fault for `path`, counted down; None where there is none."""
        for fault in self._pending:
            if fault.path == path:
                fault.count -= 1
                if fault.count <= 0:
                    self._pending.remove(fault)
                return fault
        return None
