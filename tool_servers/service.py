"""A set of tools that runs here: called in-process, or served by `server.ToolServer` and `agar tools serve`."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from agar.errors import ToolError
from agar.tool_servers.base import NO_SESSION, Session, Tools
from agar.tool_servers.config import ServiceConfig
from agar.tool_servers.tools import Tool, tools_of
from agar.types import Metrics, ToolSpec

if TYPE_CHECKING:
    from fastapi import APIRouter

Config = TypeVar("Config", bound=ServiceConfig)
CONTROL = "control"
"""The tag of routes that start no work, but look, interrupt or let go: they are answered however much is under way."""


class Service(Generic[Config]):
    """A set of tools: methods marked `@tool`; an async context manager that holds what they need while it is open.

    One instance serves every episode of a process. Methods run side by side; one that keeps something for an episode
    takes a parameter of type `Session`, and lets it go in `forget`.

    Attributes:
        config: its settings.
    """

    settings: ClassVar[type[ServiceConfig]]
    """The class of its settings, for `agar tools serve`."""

    _tools: ClassVar[Mapping[str, Tool]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._tools = tools_of(cls)

    def __init__(self, config: Config) -> None:
        """Nothing is loaded or started before `open`."""
        self.config = config

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told about the tools."""
        return tuple(item.spec for item in self._tools.values())

    def keeps(self, name: str) -> bool:
        """Whether a tool keeps something for an episode: whether it takes a parameter of type `Session`."""
        return name in self._tools and self._tools[name].session_parameter is not None

    async def open(self) -> None:
        """Load or start what the tools need; a second call does nothing."""

    async def close(self) -> None:
        """Let go of it; a second call does nothing."""

    async def forget(self, session: Session) -> None:
        """Let go of what is kept for an episode; one that is not known is no mistake."""

    def routes(self) -> "APIRouter | None":
        """More HTTP routes than the tools' own, behind the same token and bound, but for those tagged `CONTROL`."""
        return None

    def metrics(self) -> Metrics:
        """Numbers of its own by name, for instance `sessions`; shown at `/metrics`."""
        return {}

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, session: Session = NO_SESSION, timeout_s: float = 30.0
    ) -> str:
        """Call a tool; see `Tools.call`."""
        known = self._tools.get(name)
        if known is None:
            raise ToolError(f"no tool {name!r}; there are: {', '.join(self._tools) or 'none'}")
        return await known.call(self, arguments, timeout_s=timeout_s, session=session)

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Tools]:
        """The tools for one episode of this process; see `Toolbox.session`."""
        await self.open()
        session = Session(secrets.token_hex(16))
        try:
            yield _Bound(self, session)
        finally:
            await self.forget(session)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Bound:
    """A service's tools, bound to one episode."""

    def __init__(self, service: Service[Any], session: Session) -> None:
        self._service, self._session = service, session

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """See `Tools.specs`."""
        return self._service.specs

    async def call(self, name: str, arguments: Mapping[str, Any], *, timeout_s: float) -> str:
        """See `Tools.call`."""
        return await self._service.call(name, arguments, session=self._session, timeout_s=timeout_s)
