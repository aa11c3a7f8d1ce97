"""A reply on its way: what may be seen of it before it is whole."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from agar.errors import LedgerError
from agar.ledger.families.growing import GrowingReply
from agar.rollout.gateway.call import Reply
from agar.types import Finish, Turn


class LiveReply:
    """One reply that several callers may follow; each has its own `Follower`.

    Nothing waits for a caller here: what one has not yet seen is what it gets with its next step, all at once.

    Attributes:
        id: of the reply that it will be; empty until it has begun.
        prompt_tokens: length of the prompt.
        created: unix time in seconds.
        reasoning: pieces of the reasoning that are certain, in order.
        text: pieces of the text, likewise.
        told: how many of its tokens came, once it can be followed.
    """

    def __init__(self) -> None:
        self.id, self.prompt_tokens, self.created, self.told = "", 0, 0, 0
        self.reasoning: Sequence[str] = ()
        self.text: Sequence[str] = ()
        self._growing: GrowingReply | None = None
        self._wake: set[Callable[[], None]] = set()

    def begin(self, id: str, prompt_tokens: int, growing: GrowingReply) -> None:
        """The engine is asked."""
        self.id, self.prompt_tokens, self.created = id, prompt_tokens, int(time.time())
        self.reasoning, self.text, self._growing = growing.reasoning, growing.text, growing

    def tell(self, ids: Sequence[int]) -> None:
        """Take the next ids of the reply; implements `TellingEngine`'s `tell`."""
        if self._growing is not None:
            self.told += len(ids)
            self._growing.feed(ids)
            for wake in tuple(self._wake):
                wake()

    def end(self, reply: Reply) -> Reply:
        """The reply as those who followed it get it: under its id, and with what they have seen.

        A budget answers with nothing; where it ended a reply on its way, it cannot take back what was shown.
        """
        if not self.id:
            return reply
        if reply.budget is None:
            return replace(reply, id=self.id, created=self.created)
        shown = Turn(text="".join(self.text), reasoning="".join(self.reasoning) or None, finish=Finish.LENGTH)
        return replace(reply, id=self.id, created=self.created, turn=shown, prompt_tokens=self.prompt_tokens)

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever there is more."""
        self._wake.add(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Have it called no more."""
        self._wake.discard(wake)


class Follower:
    """How far one caller has followed a reply."""

    def __init__(self) -> None:
        self._live = LiveReply()
        self._seen = (0, 0)

    @property
    def begun(self) -> bool:
        """Whether it has seen anything."""
        return self._seen != (0, 0)

    def more(self, live: LiveReply) -> tuple[str, str]:
        """The reasoning and the text that came since the last time."""
        reasoning, text = self._seen
        self._live, self._seen = live, (len(live.reasoning), len(live.text))
        return "".join(live.reasoning[reasoning:]), "".join(live.text[text:])

    def rest(self, turn: Turn) -> tuple[str, str]:
        """The reasoning and the text of the whole reply that it has not seen.

        Raises:
            LedgerError: what it has seen is not how the reply begins.
        """
        reasoning, text = ("".join(seen) for seen in self._shown())
        whole = turn.reasoning or ""
        if not (whole.startswith(reasoning) and turn.text.startswith(text)) or (text and reasoning != whole):
            raise LedgerError(
                "the whole reply does not begin with what was streamed of it: the family reads it otherwise; ask again "
                "without stream, and report the reply"
            )
        return whole[len(reasoning) :], turn.text[len(text) :]

    def _shown(self) -> tuple[Sequence[str], Sequence[str]]:
        return self._live.reasoning[: self._seen[0]], self._live.text[: self._seen[1]]
