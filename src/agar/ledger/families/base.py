"""What a chat-template family does: messages to ids, new messages to bridge ids, sampled ids to a turn."""

from collections.abc import Sequence
from typing import Protocol

from agar.ledger.families.growing import GrowingReply
from agar.ledger.tokenizer import Tokenizer
from agar.types import Bools, Finish, Ids, Message, ToolSpec, Turn


class Family(Protocol):
    """One chat-template family over one tokenizer.

    A family never sees sampled ids except to read them: `render` writes a first prompt, `bridge` only what follows
    the ids that the ledger already holds, `parse` reads a reply from its ids.
    """

    @property
    def name(self) -> str:
        """Its registered name, for instance `chatml`."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """What its ids mean."""
        ...

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a reply."""
        ...

    @property
    def image_token(self) -> int | None:
        """The id that stands for one image in a prompt; None where the family renders text only."""
        ...

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The whole prompt, generation prompt included. int32 [n].

        Raises:
            LedgerError: a message cannot be rendered (for instance an image in a family of text).
        """
        ...

    def bridge(self, previous_ids: Ids, finish: Finish, new_messages: Sequence[Message]) -> Ids | None:
        """The ids that follow `previous_ids` (a prompt and its reply): turn closer, new messages, generation prompt.

        Args:
            previous_ids: int32 [n], prompt and reply as the engine saw and sampled them.
            finish: why the reply ended; a reply without its stop token gets a closer, which is never trained.
            new_messages: what came since.

        Returns:
            int32 [m], or None where this family cannot extend the ids (the call then starts a new root).

        Raises:
            LedgerError: a message cannot be rendered.
        """
        ...

    def parse(
        self, ids: Ids, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, call_id: str = "call"
    ) -> Turn:
        """Read a reply. Control tokens are located as ids, before anything is decoded.

        Never raises on what a model wrote: what cannot be read stays in `text` and `parse_error` says why.

        Args:
            ids: int32 [n], the sampled ids.
            tools: what was offered; some families' arguments have no types of their own.
            prompt: int32 [m], what was sampled on, where the reply may begin inside its reasoning; a first question's
                if None.
            call_id: what the ids of its tool calls begin with: `call_0`, `call_1` and so on.
        """
        ...

    def grow(
        self, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, holds: Sequence[str] = ()
    ) -> GrowingReply | None:
        """Read a reply while it is sampled: whatever it gives, `parse` of the whole reply gives, too.

        Args:
            tools: what was offered.
            prompt: int32 [m], what it is sampled on; a first question's if None.
            holds: texts at which the reply may be cut; nothing from one on is given.

        Returns:
            None where this family's replies can only be read as a whole.
        """
        ...

    def strips_reasoning(self, new_messages: Sequence[Message]) -> bool:
        """Whether the model's template leaves out the reasoning of earlier turns once `new_messages` follow them.

        The ids that were sampled keep it; a deployed model would not see it.
        """
        ...

    def transcript(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[Ids, Bools]:
        """A finished conversation for supervised fine-tuning.

        Returns:
            ids int32 [n], and bool [n]: True on every token an assistant would have had to sample (stop token
            included).
        """
        ...
