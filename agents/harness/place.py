"""Where a program runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from agar.agents.config import HarnessConfig
from agar.agents.harness.process import ProcessPlace
from agar.errors import ConfigError
from agar.sandbox import GATEWAY_PORT, create
from agar.sandbox.base import ExecResult, Transfer
from agar.types import SessionAccess


class Place(Protocol):
    """What a harness needs of a place: any `Sandbox` is one. Paths are relative to the program's folder."""

    async def exec(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a program and wait until its whole process tree is gone."""
        ...

    async def read(self, path: str) -> bytes:
        """The content of a file."""
        ...

    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a file."""
        ...

    async def get(self, source: str, target: Path) -> Transfer:
        """Copy a folder out; links and special files are skipped and counted."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_place(config: HarnessConfig, session: SessionAccess) -> tuple[Place, str]:
    """A fresh place for one episode, and the gateway's OpenAI base URL as seen from there.

    Raises:
        ConfigError: a sandbox is wanted, and the session's gateway has no unix socket.
    """
    if config.isolation == "none":
        return ProcessPlace(output_bytes=config.output_bytes), session.base_url
    if session.socket_path is None:
        raise ConfigError("a sandboxed program reaches the gateway by its unix socket: open the gateway first")
    spec = config.sandbox.model_copy(update={"network": "gateway", "output_bytes": config.output_bytes})
    return create(spec, gateway=session.socket_path), f"http://127.0.0.1:{GATEWAY_PORT}/v1"
