"""A reply while it is sampled: what of it no later token can change.

`Family.parse` reads whole replies. A `GrowingReply` gives the beginnings of its reasoning and of its text, and nothing
that `parse` of the whole might read otherwise. Held back are white space at an end (it may be stripped) and whatever
may be the beginning of a mark; from the first mark of a tool call on, all the rest: what follows may belong to the
text in front of it.
"""

import codecs
from collections.abc import Iterable, Sequence
from enum import Enum, auto

from agar.ledger.families.calls import CallFormat
from agar.ledger.families.reply import THINK, UNTHINK
from agar.ledger.tokenizer import Tokenizer


class _Phase(Enum):
    START = auto()
    """Nothing was said yet."""
    REASONING = auto()
    TEXT = auto()
    HELD = auto()
    """What comes is known with the whole reply only."""


class GrowingReply:
    """One reply, fed with its ids as they are sampled.

    Args:
        tokenizer: of the family; byte-level.
        stop_ids: ids that end a reply.
        calls: how calls are written; None where the family has none.
        thinks: whether its models reason.
        thinking: the reasoning mark that the prompt ended in, where it ended in one.
        unopened: whether a closing mark of reasoning makes all before it reasoning, opened or not.
        whole: a reply that begins with one of these is read as a whole.
        holds: texts at which the caller's reply may end; what stands behind one is held back.

    Attributes:
        reasoning: pieces of the reasoning, in order; complete once there is text.
        text: pieces of the text, in order.
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        stop_ids: Sequence[int],
        calls: CallFormat | None,
        thinks: bool,
        thinking: str | None,
        unopened: bool,
        whole: Sequence[str] = (),
        holds: Sequence[str] = (),
    ) -> None:
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self._tokenizer, self._stop_ids = tokenizer, frozenset(stop_ids)
        self._names = {id: text for text, id in tokenizer.added.items()}
        self._thinks = thinks
        self._calls, self._unopened, self._whole = calls is not None, unopened, tuple(whole)
        self._inside, self._stripped = thinking == THINK, thinking is not None
        marks = (calls.opening, *calls.around) if calls is not None else ()
        self._call_marks = frozenset(marks)
        # A mark that is no token of its own is looked for in the text, as `parse` does.
        spelt = tuple(mark for mark in marks if mark not in tokenizer.added)
        self._holds = {_Phase.REASONING: tuple(holds), _Phase.TEXT: (*holds, *spelt)}
        self._spelt = {mark for mark in (THINK, UNTHINK) if thinks and mark not in tokenizer.added}
        self._phase = _Phase.START
        self._tail = ""  # what is not yet sure
        self._stop: int | None = None  # ends the reply, if it is the last
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> None:
        """Read the next ids of the reply."""
        for id in ids:
            if self._stop is not None:
                self._take(self._stop)
                self._stop = None
            if id in self._stop_ids:
                self._stop = id
            else:
                self._take(id)
            if self._phase is _Phase.HELD:
                return
        self._settle()

    def _take(self, id: int) -> None:
        name = self._names.get(id)
        if name is None:
            self._tail += self._decoder.decode(self._tokenizer.bytes_of(id))
            return
        self._tail += self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._settle()
        if self._phase is _Phase.START and not (self._thinks and name == THINK and not self._tail.strip()):
            self._begin(name)
        if self._phase is _Phase.START:
            self._enter(_Phase.REASONING)
        elif self._phase is _Phase.REASONING and name == UNTHINK:
            self._close_reasoning()
        elif self._phase is _Phase.TEXT and name in self._call_marks:
            self._enter(_Phase.HELD)
        else:
            self._tail += name

    def _settle(self) -> None:
        """Give away what is sure of the tail."""
        if self._phase is _Phase.START:
            said = self._tail.lstrip()
            if THINK in self._spelt and said.startswith(THINK):
                self._enter(_Phase.REASONING)
                self._tail = said.removeprefix(THINK)
            elif not said or (THINK in self._spelt and THINK.startswith(said)):
                return
            else:
                self._begin()
        if self._phase is _Phase.REASONING:
            before, closed, after = self._tail.partition(UNTHINK) if UNTHINK in self._spelt else (self._tail, "", "")
            if closed:
                self._tail = before
                self._close_reasoning()
                self._tail = after
            else:
                self._release(self.reasoning, (UNTHINK,) if UNTHINK in self._spelt else ())
        if self._phase is _Phase.TEXT:
            self._release(self.text)

    def _begin(self, mark: str = "") -> None:
        """The reply does not begin with a mark of reasoning."""
        said = self._tail + mark
        if said.lstrip().startswith(self._whole) or (not self._inside and self._unopened):
            self._enter(_Phase.HELD)
        elif self._inside:
            self._phase = _Phase.REASONING
        elif said[:1].isspace() and self._calls and not self._stripped:
            self._enter(_Phase.HELD)  # stripped only if there are calls
        else:
            self._phase = _Phase.TEXT

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._tail = phase, ""

    def _close_reasoning(self) -> None:
        self._release(self.reasoning)
        if self._phase is _Phase.HELD:
            return
        if rest := self._tail.rstrip() if self.reasoning else self._tail.strip():
            self.reasoning.append(rest)
        self._stripped = True
        self._enter(_Phase.TEXT)

    def _release(self, pieces: list[str], ends: Sequence[str] = ()) -> None:
        """Move what is sure from the tail to the pieces.

        Args:
            pieces: where it goes.
            ends: marks that end this part of the reply beside those that hold all the rest back.
        """
        if not pieces and (self._phase is _Phase.REASONING or self._stripped):
            self._tail = self._tail.lstrip()
        holds = self._holds[self._phase]
        found = [at for hold in holds if (at := self._tail.find(hold)) >= 0]
        sure = _sure(self._tail, (*holds, *ends))
        if found:
            sure = min(sure, _sure(self._tail[: min(found)], holds))
        if piece := self._tail[:sure].rstrip():
            pieces.append(piece)
            self._tail = self._tail[len(piece) :]
        if found:
            self._enter(_Phase.HELD)


def _sure(text: str, marks: Sequence[str]) -> int:
    """Up to where no mark can begin that further text would complete."""
    longest = max((len(mark) for mark in marks), default=1) - 1
    for at in range(max(0, len(text) - longest), len(text)):
        if any(mark.startswith(text[at:]) for mark in marks):
            return at
    return len(text)
