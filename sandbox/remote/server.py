"""Sandboxes behind HTTP, inside the caller's event loop."""

from collections.abc import Callable
from typing import Self

from agar.errors import ConfigError, MissingExtraError, to_install
from agar.sandbox.base import Sandbox
from agar.sandbox.config import SandboxSpec
from agar.sandbox.factory import create
from agar.sandbox.remote.config import SandboxServerConfig
from agar.sandbox.remote.shelf import Shelf


class SandboxServer:
    """Serves sandboxes while it is open: an async context manager; at its end all of them are deleted."""

    def __init__(self, config: SandboxServerConfig, *, make: Callable[[SandboxSpec], Sandbox] = create) -> None:
        """Nothing listens yet.

        Args:
            config: where, for whom, and what sandboxes may be.
            make: makes one.

        Raises:
            ConfigError: others can reach the address and there is no token, or the spec cannot be served.
            MissingExtraError: fastapi or uvicorn is not installed.
        """
        if config.spec.backend == "remote" or config.spec.network == "gateway":
            raise ConfigError('spec: backend = "remote" and network = "gateway" cannot be served: choose others')
        try:
            from agar.sandbox.remote.app import build_app
            from agar.serving.listener import Listener
        except ImportError as error:
            raise MissingExtraError(f"serving sandboxes needs {error.name}: {to_install('tools')}") from error
        self._shelf = Shelf(idle_s=config.idle_s)
        self._listener = Listener(
            build_app(self._shelf, config, make),
            name="sandboxes",
            host=config.host,
            port=config.port,
            shutdown_timeout_s=config.shutdown_timeout_s,
            head_timeout_s=config.head_timeout_s,
        )

    @property
    def url(self) -> str:
        """Where it is served, without a slash at the end."""
        host = f"[{self._listener.host}]" if ":" in self._listener.host else self._listener.host
        return f"http://{host}:{self._listener.port}"

    @property
    def shelf(self) -> Shelf:
        """The sandboxes that there are."""
        return self._shelf

    async def __aenter__(self) -> Self:
        await self._shelf.__aenter__()
        try:
            await self._listener.start()
        except BaseException:
            await self._shelf.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._listener.stop()
        finally:
            await self._shelf.__aexit__()
