"""The queue of groups between rollouts and training: first in, first out, resumable."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agar.ledger.codec import plain
from agar.ledger.trace import Trace
from agar.types import GroupId, TaskRow


@dataclass(slots=True, kw_only=True)
class Group:
    """A group in the queue: the attempts at one task, those finished so far among them.

    Attributes:
        id: the group.
        stream: index of the task stream that it came from.
        task: the task.
        size: attempts wanted.
        finished: the sealed trace of each attempt that has ended, by its index.
        graded: False while the attempts are still to be graded together.
    """

    id: GroupId
    stream: int
    task: TaskRow
    size: int
    finished: dict[int, Trace] = field(default_factory=dict)
    graded: bool = True

    @property
    def done(self) -> bool:
        """True once every attempt has ended, and they have been graded together where that is wanted."""
        return self.graded and not self.missing

    @property
    def missing(self) -> list[int]:
        """Indexes of the attempts still to be played."""
        return [index for index in range(self.size) if index not in self.finished]

    @property
    def traces(self) -> list[Trace]:
        """The traces in attempt order."""
        return [self.finished[index] for index in sorted(self.finished)]

    @property
    def trainable(self) -> list[Trace]:
        """The traces that reach the loss; calls that were open at the seal quarantine a trace."""
        return [trace for trace in self.traces if trace.outcome.trainable and not trace.open_calls]


class Buffer:
    """Groups by ordinal, oldest first; some finished, some in flight.

    Taking in this order makes the staleness bound hold for every group: the oldest never waits behind a newer one.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[int, Group] = OrderedDict()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def add(self, group: Group) -> None:
        """Put a group at the end of the queue."""
        self._groups[group.id.ordinal] = group

    def drop(self, group: Group) -> None:
        """Take a group out of the queue for good; the caller counts the reason."""
        del self._groups[group.id.ordinal]

    def take(self, count: int) -> list[Group] | None:
        """The `count` oldest groups if all of them are done, else None (nothing is taken)."""
        head = list(self._groups.values())[:count]
        if len(head) < count or not all(group.done for group in head):
            return None
        for group in head:
            self.drop(group)
        return head

    def put_back(self, groups: Sequence[Group]) -> None:
        """Undo a `take`: its groups are the oldest again, in their order."""
        for group in reversed(groups):
            self.add(group)
            self._groups.move_to_end(group.id.ordinal, last=False)

    def state(self) -> list[dict[str, Any]]:
        """JSON-able content: finished attempts as traces; the missing ones are played again on resume."""
        return [
            {
                "id": asdict(group.id),
                "stream": group.stream,
                "task": plain(group.task),
                "size": group.size,
                "graded": group.graded,
                "finished": {str(index): trace.dump().decode() for index, trace in group.finished.items()},
            }
            for group in self
        ]

    def load_state(self, state: list[Mapping[str, Any]]) -> None:
        """Replace the content by what `state` gave."""
        self._groups.clear()
        for entry in state:
            self.add(
                Group(
                    id=GroupId(**entry["id"]),
                    stream=entry["stream"],
                    task=TaskRow(**entry["task"]),
                    size=entry["size"],
                    graded=entry.get("graded", True),
                    finished={int(index): Trace.load(line.encode()) for index, line in entry["finished"].items()},
                )
            )
