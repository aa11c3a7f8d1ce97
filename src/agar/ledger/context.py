"""The ids of a path as they grow: each is copied once and hashed once, however many prompts begin with it."""

import hashlib

import numpy as np

from agar.ledger.trace import digest
from agar.types import Ids

_DTYPE = np.dtype("<i4")  # as they are hashed
_LEAST_ROOM = 1024


class _Room:
    """Memory that several contexts begin in, and the hash of its first ids; what is written there once stays."""

    __slots__ = ("hash", "hashed", "ids", "shown", "used")

    def __init__(self, ids: Ids, length: int) -> None:
        self.ids: Ids = np.empty(max(2 * length, _LEAST_ROOM), _DTYPE)
        self.ids[: len(ids)] = ids
        self.shown = self.ids[:]
        self.shown.flags.writeable = False
        self.used, self.hashed = len(ids), 0
        self.hash = hashlib.blake2b(digest_size=16)


class Context:
    """A prompt, or a prompt and its reply; made by `of` and `followed`.

    Attributes:
        ids: int32 [n], read-only.
    """

    __slots__ = ("_room", "ids")

    def __init__(self, room: _Room, length: int) -> None:
        self._room, self.ids = room, room.shown[:length]

    @classmethod
    def of(cls, ids: Ids) -> "Context":
        """A context of its own."""
        return cls(_Room(ids, len(ids)), len(ids))

    def followed(self, more: Ids) -> "Context":
        """These ids and what follows them: in the same memory, where nothing else has followed them yet."""
        start, room = len(self.ids), self._room
        stop = start + len(more)
        if room.used != start or stop > len(room.ids):
            room = self._moved(stop)
        room.ids[start:stop] = more
        room.used = stop
        return Context(room, stop)

    @property
    def digest(self) -> str:
        """BLAKE2b-128 of the ids, in hexadecimal; that of `trace.digest`."""
        room, length = self._room, len(self.ids)
        if room.hashed > length:
            return digest(self.ids)
        room.hash.update(self.ids[room.hashed :].data)
        room.hashed = length
        return room.hash.hexdigest()

    def _moved(self, length: int) -> _Room:
        room = _Room(self.ids, length)
        if self._room.hashed <= len(self.ids):
            room.hash, room.hashed = self._room.hash.copy(), self._room.hashed
        return room
