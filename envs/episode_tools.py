"""The tools that an episode has from elsewhere: services, tool servers, MCP servers."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agar.errors import ConfigError, ToolServerError

if TYPE_CHECKING:
    from agar.tool_servers.base import Toolbox, Tools
    from agar.types import ToolSpec

logger = logging.getLogger(__name__)


class EpisodeTools:
    """One session with each toolbox, from `open` to `close`."""

    def __init__(self, toolboxes: "Sequence[Toolbox]", *, taken: "Sequence[str]" = ()) -> None:
        """Prepare them.

        Args:
            toolboxes: where the tools come from.
            taken: names that none of them may have.
        """
        self._toolboxes, self._taken = toolboxes, taken
        self._sessions: contextlib.AsyncExitStack | None = None
        self._owners: dict[str, Tools] = {}
        self.failure: str | None = None
        """Why a toolbox failed, where one did; it stays set, whoever caught the error."""

    @property
    def specs(self) -> "tuple[ToolSpec, ...]":
        """What the model is told about them."""
        return tuple(spec for tools in dict.fromkeys(self._owners.values()) for spec in tools.specs)

    @property
    def is_open(self) -> bool:
        """True from `open` until `close`."""
        return self._sessions is not None

    def __contains__(self, name: str) -> bool:
        return name in self._owners

    async def open(self) -> None:
        """Begin the sessions.

        Raises:
            ToolServerError: a toolbox cannot be reached.
            ConfigError: two tools have the same name.
        """
        async with contextlib.AsyncExitStack() as stack:
            for toolbox in self._toolboxes:
                tools = await stack.enter_async_context(toolbox.session())
                for spec in tools.specs:
                    if spec.name in self._owners or spec.name in self._taken:
                        raise ConfigError(f"two tools are named {spec.name!r}: leave out one, or rename it")
                    self._owners[spec.name] = tools
            self._sessions = stack.pop_all()

    async def call(self, name: str, arguments: Mapping[str, Any], *, timeout_s: float) -> str:
        """Call one of them; see `Tools.call`."""
        try:
            return await self._owners[name].call(name, arguments, timeout_s=timeout_s)
        except ToolServerError as error:
            self.failure = str(error)
            raise

    async def close(self) -> None:
        """End the sessions. Idempotent. One that does not end well is logged: the episode is over."""
        sessions, self._sessions = self._sessions, None
        if sessions is not None:
            try:
                await sessions.aclose()
            except Exception as error:
                logger.warning("a session with a toolbox did not end well: %r", error)
