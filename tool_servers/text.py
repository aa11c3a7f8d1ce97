"""Text that can be sent."""

from typing import Annotated

from pydantic import BeforeValidator


def sendable(text: str) -> str:
    """A text without halves of surrogate pairs, which a Python string can hold and JSON carry, and UTF-8 cannot.

    Each becomes a question mark. A model that writes "backslash ud800" in its code makes programs say them.
    """
    return text.encode("utf-8", "replace").decode()


def _sendable(value: object) -> object:
    return sendable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_sendable)]
"""A field of a reply, cleaned by `sendable`."""
