"""Keys-v0: a world of rooms with a locked vault. The key lies in one room, its code is read in another.

Only the room in which one stands is described, a note can be read once, and what one carries is never listed: who wants
to open the vault must remember where it was, whether the key is there, and the code. A wrong code ends the game.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from agar.envs.base import Env, StepResult
from agar.envs.library.drawn import DrawnTasks
from agar.envs.spaces import Observation
from agar.types import Turn

SIZE = 3
"""Rooms along each side of the square."""
_STEPS = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
_COLOURS = ("red", "blue", "green", "white", "black", "yellow", "brown", "grey", "golden")
_RULES = (
    "You are in a house of nine rooms. Somewhere is a vault: open it. You need the key, and the code from the note. "
    "Say one of: go north, go south, go east, go west, take key, read note, unlock CODE."
)


class Keys(Env):
    """Rooms, a key, a note and a vault; reward 1 for opening the vault."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Enter the first room."""
        super().reset(seed=seed)
        self.task = tasks.given_or_drawn(options, self.np_random)
        self.world = dict(self.task.payload)
        self.room = int(self.world["start"])
        self.has_key = self.has_read = False
        return f"{_RULES}\n\n{self._view()}", {}

    def step(self, action: Turn) -> StepResult:
        """Do what the last line of the text says."""
        lines = action.text.strip().lower().splitlines()
        match (lines[-1] if lines else "").strip(" .!").split():
            case ["go", direction] if direction in self._exits():
                self.room = self._exits()[direction]
                return self._view(), 0.0, False, False, {}
            case ["take", "key"] if self.room == self.world["key"] and not self.has_key:
                self.has_key = True
                return "You take the key.", 0.0, False, False, {}
            case ["read", "note"] if self.room == self.world["note"] and not self.has_read:
                self.has_read = True
                said = f"It says: the code is {self.world['code']}. The note crumbles to dust."
                return said, 0.0, False, False, {}
            case ["unlock", code] if self.room == self.world["vault"] and self.has_key:
                if code == str(self.world["code"]):
                    return "The vault opens.", 1.0, True, False, {}
                return "Wrong. The vault locks itself for good.", 0.0, True, False, {}
        return "That cannot be done here.", 0.0, False, False, {}

    def gold(self) -> Turn:
        """The shortest way: the key, the note, the vault."""
        goal = self.world["vault"]
        if not self.has_key:
            goal = self.world["key"]
        elif not self.has_read:
            goal = self.world["note"]
        if self.room != goal:
            return Turn(text=f"go {self._toward(goal)}")
        if not self.has_key:
            return Turn(text="take key")
        return Turn(text=f"unlock {self.world['code']}" if self.has_read else "read note")

    def _exits(self) -> dict[str, int]:
        return exits(self.room, self.world["doors"])

    def _view(self) -> str:
        things = [
            text
            for place, here, text in (
                ("key", not self.has_key, "A key hangs on the wall."),
                ("note", not self.has_read, "A note lies on the floor."),
                ("vault", True, "Here is the vault."),
            )
            if here and self.room == self.world[place]
        ]
        return " ".join([f"The {_COLOURS[self.room]} room.", *things, f"Exits: {', '.join(sorted(self._exits()))}."])

    def _toward(self, goal: int) -> str:
        """The first step of the shortest way there."""
        ways: dict[int, str] = {}
        queue = deque((room, direction) for direction, room in self._exits().items())
        while queue:
            room, first = queue.popleft()
            if room == goal:
                return first
            if room not in ways:
                ways[room] = first
                queue += [(after, first) for after in exits(room, self.world["doors"]).values()]
        raise AssertionError("every room can be reached from every other")


def exits(room: int, doors: list[list[int]]) -> dict[str, int]:
    """The rooms next to a room by direction, where there is a door."""
    x, y = room % SIZE, room // SIZE
    found = {}
    for direction, (dx, dy) in _STEPS.items():
        if 0 <= x + dx < SIZE and 0 <= y + dy < SIZE:
            other = room + dx + SIZE * dy
            if sorted([room, other]) in doors:
                found[direction] = other
    return found


def draw(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A house: doors that connect all rooms, four different places, and a code."""
    every_door = [
        sorted([room, other])
        for room in range(SIZE * SIZE)
        for other in (room + 1, room + SIZE)
        if other < SIZE * SIZE and not (other == room + 1 and other % SIZE == 0)
    ]
    order = [every_door[index] for index in rng.permutation(len(every_door))]
    part = list(range(SIZE * SIZE))  # rooms with the same number are connected
    doors = []
    for one, other in order:
        if part[one] != part[other]:
            part = [part[one] if number == part[other] else number for number in part]
            doors.append([one, other])
    places = rng.permutation(SIZE * SIZE)[:4].tolist()
    world = dict(zip(("start", "key", "note", "vault"), places, strict=True))
    return "", {**world, "doors": sorted(doors), "code": int(rng.integers(100, 1000))}


tasks = DrawnTasks("Keys-v0", draw)
