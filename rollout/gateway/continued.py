"""Bodies that go on from one that was read before: only what is new of them is read.

A program sends its whole history with every call, and nearly always the same bytes around it: up to the end of the last
message, and behind it. Of such a body all is known but the rows between. What is said of it here is what a reading from
the start would find; a body that is not surely of this kind is left to that reading, and so is one with a fault.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from agar.ledger.comparison import common_prefix
from agar.rollout.gateway.bodies import Fingerprint, begin_fingerprint
from agar.rollout.gateway.call import ModelCall

_MAX_KEPT_BODIES = 4
_MAX_KEPT_BYTES = 16 * 1024 * 1024
_AFTER_ROW = b"] \n\r\t"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Undivided:
    """A body that was read; where its rows end shows when another goes on from it."""

    head: bytes  # all of it
    tail: bytes = b""
    rows: int
    call: ModelCall


@dataclass(slots=True, kw_only=True, eq=False)
class Divided:
    """The last body of a conversation.

    Attributes:
        head: its bytes up to the end of the last row.
        tail: those behind, which all bodies of the conversation have in common.
        hashed: what begins its fingerprint, with `head` in it.
        rows: how many rows it has.
        call: what it asks for.
    """

    head: bytes
    tail: bytes
    hashed: Fingerprint
    rows: int
    call: ModelCall


class Continued(NamedTuple):  # a tuple, since nearly every call makes one
    """A body that goes on from another one.

    Attributes:
        before: the other, until `Bodies.go_on`.
        new: the bytes that it has beyond those, between the other's head and tail.
        rows: the rows that these are.
        hashed: what begins its fingerprint, with the other's head and `new` in it.
    """

    before: Divided
    new: bytes
    rows: Sequence[Any]
    hashed: Fingerprint

    @property
    def fingerprint(self) -> bytes:
        """Of the whole body; see `bodies.fingerprint`."""
        whole = self.hashed.copy()
        whole.update(self.before.tail)
        return whole.digest()


class Bodies:
    """The bodies that a session read last: one for each conversation that it leads, as long as those are few.

    Args:
        field: the field that holds the rows.
        dialect: of the fingerprints.
        limit_bytes: how much it keeps of them.

    Attributes:
        held_bytes: how much it keeps now.
    """

    def __init__(self, field: str, *, dialect: bytes, limit_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._field, self._dialect, self._limit_bytes = field, dialect, limit_bytes
        self._kept: list[_Undivided | Divided] = []  # the newest first
        self.held_bytes = 0

    def continued(self, body: bytes) -> Continued | None:
        """What is new of a body; None where it has to be read from the start."""
        for number, kept in enumerate(self._kept):
            divided = self._divided(kept, body) if isinstance(kept, _Undivided) else kept
            if divided is None:
                continue
            self._kept[number] = divided
            head, tail = divided.head, divided.tail
            if body.startswith(head) and body.endswith(tail) and len(body) >= len(head) + len(tail):
                return _continued(divided, body)
        return None

    def keep(self, body: bytes, rows: int, call: ModelCall) -> None:
        """Remember a body that was read from the start."""
        if len(body) <= self._limit_bytes:
            self._kept.insert(0, _Undivided(head=body, rows=rows, call=call))
            self._hold(len(body))

    def go_on(self, read: Continued, call: ModelCall) -> None:
        """Remember a body in the place of the one that it goes on from."""
        kept = read.before
        kept.head, kept.hashed, kept.call = kept.head + read.new, read.hashed, call
        kept.rows += len(read.rows)
        if self._kept[0] is not kept:
            self._kept.remove(kept)
            self._kept.insert(0, kept)
        self._hold(len(read.new))

    def _hold(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        while len(self._kept) > _MAX_KEPT_BODIES or self.held_bytes > self._limit_bytes:
            dropped = self._kept.pop()
            self.held_bytes -= len(dropped.head) + len(dropped.tail)

    def _divided(self, kept: _Undivided, body: bytes) -> Divided | None:
        """A kept body divided where its rows end, if that is where another goes on with a further row.

        It can only be where the two part. A row that is put in there, and that none can be like, shows whether it is at
        the end of the list of rows, not of another list, of text, or of a field of the same name that does not count.
        """
        whole = kept.head
        end = common_prefix(whole, body)
        if end == len(whole) or whole[end] not in _AFTER_ROW or not body[end:].lstrip().startswith(b","):
            return None
        head, tail = whole[:end], whole[end:]
        try:
            rows = orjson.loads(b"%b,null%b" % (head, tail))[self._field]
        except orjson.JSONDecodeError:
            return None
        if rows[-1] is not None:
            return None
        hashed = begin_fingerprint(self._dialect)
        hashed.update(head)
        return Divided(head=head, tail=tail, hashed=hashed, rows=kept.rows, call=kept.call)


def _continued(kept: Divided, body: bytes) -> Continued | None:
    """What is new of a body that begins and ends as a kept one does, if rows are all that stands between.

    Between other brackets: text that would close the list of rows closes these, and is followed by one too many.
    """
    new = body[len(kept.head) : len(body) - len(kept.tail)]
    try:
        rows = orjson.loads(b"[null%b]" % new)[1:]
    except orjson.JSONDecodeError:
        return None
    hashed = kept.hashed.copy()
    hashed.update(new)
    return Continued(before=kept, new=new, rows=rows, hashed=hashed)
