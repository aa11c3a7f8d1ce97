"""The ids of a path as they grow: each is copied once and hashed once, however many prompts begin with it."""

import hashlib
from typing import Any

import numpy as np

from agar.types import Ids

_DTYPE = np.dtype("<i4")  # as they are hashed
_LEAST_ROOM = 256


class _Room:
    """Memory that several contexts begin in; what is written there once stays."""

    __slots__ = ("ids", "used")

    def __init__(self, ids: Ids, length: int) -> None:
        self.ids: Ids = np.empty(max(length + length // 2, _LEAST_ROOM), _DTYPE)
        self.ids[: len(ids)] = ids
        self.used = len(ids)


class Context:
    """A prompt, or a prompt and its reply.

    Attributes:
        ids: int32 [n], read-only.
    """

    __slots__ = ("_hash", "_room", "ids")

    def __init__(self, ids: Ids) -> None:
        self._grow(_Room(ids, len(ids)), hashlib.blake2b(digest_size=16), 0, len(ids))

    def followed(self, more: Ids) -> "Context":
        """These ids and what follows them: in the same memory, where nothing else has followed them yet."""
        start, room = len(self.ids), self._room
        stop = start + len(more)
        if room.used != start or stop > len(room.ids):
            room = _Room(self.ids, stop)
        room.ids[start:stop] = more
        room.used = stop
        context = Context.__new__(Context)
        context._grow(room, self._hash.copy(), start, stop)
        return context

    @property
    def digest(self) -> str:
        """BLAKE2b-128 of the ids, in hexadecimal; that of `trace.digest`."""
        digest: str = self._hash.hexdigest()
        return digest

    def _grow(self, room: _Room, hashed: Any, start: int, stop: int) -> None:
        """Be the first `stop` ids of `room`, of which `hashed` has seen `start`."""
        self._room, self.ids = room, room.ids[:stop]
        self.ids.flags.writeable = False
        hashed.update(self.ids[start:])
        self._hash = hashed
