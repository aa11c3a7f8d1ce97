"""Requests to a sandbox server, and what may go wrong with them."""

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agar.errors import (
    AgarError,
    ConfigError,
    MissingExtraError,
    SandboxError,
    ToolError,
    UnsupportedPlatformError,
    to_install,
)
from agar.sandbox.remote.config import TOKEN_VARIABLE
from agar.sandbox.remote.wire import Problem

_CONNECT_TIMEOUT_S = 10.0
_KINDS: Mapping[str, type[AgarError]] = {
    kind.__name__: kind for kind in (ToolError, SandboxError, ConfigError, UnsupportedPlatformError)
}


class SandboxClient:
    """Speaks to one server. Nothing of it is bound to an event loop."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        """Nothing is connected yet.

        Args:
            url: the server, as `agar sandbox serve` prints it.
            token: its token; the environment variable `AGAR_SANDBOX_TOKEN` if None.
        """
        self.url = url.rstrip("/")
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Any:
        """Send a request; gives httpx's response.

        Args:
            method: of HTTP.
            path: below the server's address.
            body: what is sent as JSON.
            content: what is sent as it stands.
            params: of the query.
            timeout_s: the longest wait for the answer.

        Raises:
            MissingExtraError: httpx is not installed.
            ToolError, ConfigError, UnsupportedPlatformError, SandboxError: as the server says.
            ToolError: a name is no text (the name of a file need not be).
            ConfigError: a number is none that JSON has a word for.
            SandboxError: it cannot be reached, refuses the token, is full, or answers with something else.
        """
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(f"remote sandboxes need httpx: {to_install('sandbox')}") from error
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S)
        verify = self.url.startswith("https:")  # reading certificates takes longer than a call
        async with httpx.AsyncClient(timeout=timeout, headers=headers, trust_env=False, verify=verify) as http:
            try:
                answer = await http.request(method, self.url + path, json=body, content=content, params=params)
            except httpx.HTTPError as error:
                raise SandboxError(
                    f"the sandbox server at {self.url} gave no answer to {method} {path} within {timeout_s:g} s "
                    f"({type(error).__name__}: {error}): is it running?"
                ) from error
            except UnicodeEncodeError as error:
                shown = error.object[:200].encode("ascii", "backslashreplace").decode()
                raise ToolError(f"{shown!r} cannot be sent, for it is no text: name another path") from error
            except ValueError as error:
                raise ConfigError(f"{method} {path}: its settings cannot be sent as JSON: {error}") from error
        if answer.status_code >= 400:
            raise _problem(answer.status_code, answer.content, self.url)
        return answer


def _problem(status: int, content: bytes, url: str) -> AgarError:
    try:
        problem = Problem.model_validate_json(content)
    except ValidationError:
        said = content[:300].decode(errors="replace")
        hint = f": set {TOKEN_VARIABLE} to its token" if status == 401 else ""
        return SandboxError(f"the sandbox server at {url} answered {status}: {said}{hint}")
    return _KINDS[problem.kind](problem.detail)
