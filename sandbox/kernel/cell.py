"""What a cell did."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

Status = Literal["ok", "error", "interrupted", "died"]
"""`error`: it raised; `interrupted`: it was, and its variables are kept; `died`: the interpreter did, they are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one cell did.

    Attributes:
        status: how it ended.
        output: what it wrote, to standard output and error in order, subprocesses included; undecodable bytes become
            U+FFFD.
        cut_bytes: how many bytes of its output were left out; a notice stands in their place.
        shown: the values that it showed, each by type: `text/plain` always, `image/png` and the like in base64; None
            where one was too large.
        error: the traceback; None where it raised nothing.
        notices: what else the agent should know (a deadline, lost variables), a sentence each.
    """

    status: Status
    output: str = ""
    cut_bytes: int = 0
    shown: tuple[Mapping[str, str | None], ...] = ()
    error: str | None = None
    notices: tuple[str, ...] = ()

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any], *, deadline_s: float | None) -> Self:
        """A cell from what the supervisor says of it.

        Args:
            reply: its frame.
            deadline_s: the deadline that the cell was ended at; None where it ended by itself.

        Raises:
            KeyError, TypeError, ValueError: the frame says something else.
        """
        notices = []
        if reply["lost"]:
            notices.append("The interpreter had died before this cell: it began without variables.")
        status: Status = reply["status"]
        if deadline_s is not None and status in ("interrupted", "died"):
            notices.append(f"The cell was ended after {deadline_s:g} s.")
        if status == "died":
            how = f"signal {reply['signal']}" if reply["signal"] else f"exit status {reply['code']}"
            notices.append(f"The interpreter died ({how}): a new one has started, without variables.")
        elif status not in ("ok", "error", "interrupted"):
            raise ValueError(f"no status {status!r}")
        shown = tuple({str(kind): data for kind, data in dict(forms).items()} for forms in reply.get("shown", ()))
        error = reply.get("error")
        return cls(
            status=status,
            output=str(reply["output"]),
            cut_bytes=int(reply["cut"]),
            shown=shown,
            error=None if error is None else str(error),
            notices=tuple(notices),
        )

    def to_text(self) -> str:
        """All of it as one text, for a model that reads no images."""
        parts = [self.output.rstrip("\n")]
        for forms in self.shown:
            others = ", ".join(kind for kind in forms if kind != "text/plain")
            parts.append((forms.get("text/plain") or "") + (f" [{others}]" if others else ""))
        parts.append((self.error or "").rstrip("\n"))
        parts += [f"[{notice}]" for notice in self.notices]
        return "\n".join(part for part in parts if part)
