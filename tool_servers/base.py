"""What every source of tools has in common, whether it runs here, behind HTTP, or speaks MCP.

Whose fault is it? A call that cannot be carried out as the agent made it (unknown tool, arguments that do not fit, a
passed deadline) is a `ToolError`: text for the agent. A source that cannot be reached, breaks its protocol or fails
inside is a `ToolServerError`: infrastructure, which never counts against the agent.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NewType, Protocol

from agar.types import ToolSpec

Session = NewType("Session", str)
"""The episode that a call belongs to. A tool's method that has a parameter of this type gets it; no model sees it."""
Deadline = NewType("Deadline", float)
"""Seconds that a call may take. A tool's method that has a parameter of this type gets it, and keeps it by itself."""
NO_SESSION = Session("")
"""Where a call belongs to none: nothing is kept for it."""


class Tools(Protocol):
    """The tools of one episode."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """What the model is told about them."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any], *, timeout_s: float) -> str:
        """Call one of them.

        Args:
            name: the tool.
            arguments: what the model sent.
            timeout_s: deadline in seconds, unless the tool has one of its own.

        Returns:
            What it says, for the agent.

        Raises:
            ToolError: it could not be done as asked; the agent reads the text.
            ToolServerError: the source has failed.
            SandboxError: the sandbox that the tool runs in has failed.
        """
        ...


class Toolbox(Protocol):
    """Where tools come from: a `Service` in this process, a `ToolClient`, an `McpTools`."""

    def session(self) -> AbstractAsyncContextManager[Tools]:
        """The tools for one episode; what they keep for it is gone at the end.

        Raises:
            ToolServerError: on entering: the source cannot be reached.
        """
        ...
