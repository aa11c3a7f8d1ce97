"""E2B's protocol: machines over REST, commands over Connect (JSON in envelopes), files over HTTP.

Source: the interface descriptions in the repository e2b-dev/E2B, `spec/openapi.yml`, `spec/envd/envd.yaml` and
`spec/envd/process/process.proto`, and https://connectrpc.com/docs/protocol.
"""

import base64
import json
import os
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agar.errors import ConfigError, MissingExtraError, SandboxError, to_install

KEY_VARIABLE = "E2B_API_KEY"
_DOMAIN = "e2b.app"
_AGENT_PORT = 49983
_CALL_TIMEOUT_S = 60.0
_COMPRESSED, _END_OF_STREAM = 1, 2
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of the service.

    Attributes:
        name: what the service calls it.
        url: where its agent answers.
        headers: what its agent wants to see.
    """

    name: str
    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a command did: began (`pid`), wrote (`stream`, `data`), ended (`code`).

    Attributes:
        pid: its process.
        stream: 1 for its output, 2 for its errors.
        data: what it wrote.
        code: its exit status; -1 after a signal.
    """

    pid: int | None = None
    stream: int = 1
    data: bytes = b""
    code: int | None = None


class E2BClient:
    """Speaks to one service. Nothing of it is bound to an event loop."""

    def __init__(self, url: str | None = None, *, key: str | None = None, agent_url: str | None = None) -> None:
        """Nothing is connected yet.

        Args:
            url: the service's REST interface; E2B's own if None.
            key: the key; the environment variable `E2B_API_KEY` if None.
            agent_url: where the agents of all machines answer, where a service has one door for all.

        Raises:
            ConfigError: there is no key.
        """
        self.url = (url or f"https://api.{_DOMAIN}").rstrip("/")
        self._agent_url = agent_url
        self._key = key if key is not None else os.environ.get(KEY_VARIABLE, "")
        if not self._key:
            raise ConfigError(f"sandboxes of E2B need a key: set {KEY_VARIABLE}")

    async def make(self, template: str, *, lifetime_s: int, internet: bool) -> Machine:
        """Make a machine.

        Args:
            template: what it is made of, by the service's name.
            lifetime_s: after how many seconds the service deletes it, whatever becomes of us.
            internet: whether it may reach others.

        Raises:
            SandboxError: the service refused, or did not answer.
        """
        body = {"templateID": template, "timeout": lifetime_s, "secure": True, "allow_internet_access": internet}
        made = await self._call("POST", "/sandboxes", body=body)
        try:
            name = str(made["sandboxID"])
            domain = made.get("domain") or _DOMAIN
            token = made.get("envdAccessToken")
        except (KeyError, TypeError, AttributeError) as error:
            raise SandboxError(f"{self.url} did not say what it has made: {made!r}") from error
        headers = {"E2b-Sandbox-Id": name, "E2b-Sandbox-Port": str(_AGENT_PORT)}
        headers |= {"X-Access-Token": token} if token else {}
        return Machine(name=name, url=self._agent_url or f"https://{_AGENT_PORT}-{name}.{domain}", headers=headers)

    async def extend(self, machine: Machine, lifetime_s: int) -> None:
        """Let a machine live so many seconds from now."""
        await self._call("POST", f"/sandboxes/{machine.name}/timeout", body={"timeout": lifetime_s})

    async def remove(self, machine: Machine) -> None:
        """Delete a machine and see it deleted.

        Raises:
            SandboxError: it is still there.
        """
        await self._call("DELETE", f"/sandboxes/{machine.name}", missing_ok=True)
        left = await self._call("GET", f"/sandboxes/{machine.name}", missing_ok=True)
        if left is not None:
            raise SandboxError(f"the machine {machine.name} is still there after it was deleted: delete it by hand")

    @asynccontextmanager
    async def start(
        self, machine: Machine, words: Sequence[str], *, env: Mapping[str, str], user: str, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Run a command; what it does comes while the context is open, and hanging up does not end it.

        Args:
            machine: where.
            words: what to run.
            env: variables over the machine's own.
            user: as whom, by the machine's name.
            timeout_s: the longest wait for the next event, in seconds.

        Raises:
            SandboxError: the agent refused, failed or hung up.
        """
        httpx = _httpx()
        process = {"cmd": words[0], "args": list(words[1:]), "envs": dict(env), "cwd": "/"}
        message = json.dumps({"process": process}).encode()
        headers = {**_agent_headers(machine, user), "content-type": "application/connect+json"}
        headers["Keepalive-Ping-Interval"] = "50"
        try:
            async with (
                httpx.AsyncClient(timeout=httpx.Timeout(timeout_s, connect=_CALL_TIMEOUT_S), trust_env=False) as http,
                http.stream(
                    "POST",
                    f"{machine.url}/process.Process/Start",
                    content=struct.pack(">BI", 0, len(message)) + message,
                    headers=headers,
                ) as answer,
            ):
                if answer.status_code != 200:
                    raise _refused("/process.Process/Start", answer.status_code, await answer.aread())
                yield _events(answer.aiter_bytes())
        except httpx.HTTPError as error:
            raise _silent(machine.url, "/process.Process/Start", error) from error

    async def upload(self, machine: Machine, path: str, data: bytes, *, user: str) -> None:
        """Write a file."""
        httpx = _httpx()
        files = {"file": (path, data, "application/octet-stream")}
        params = {"path": path, "username": user}
        async with httpx.AsyncClient(timeout=_CALL_TIMEOUT_S, trust_env=False) as http:
            try:
                answer = await http.post(
                    f"{machine.url}/files", params=params, files=files, headers=_agent_headers(machine, user)
                )
            except httpx.HTTPError as error:
                raise _silent(machine.url, "/files", error) from error
        if answer.status_code >= 400:
            raise _refused("/files", answer.status_code, answer.content)

    async def _call(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, missing_ok: bool = False
    ) -> Any:
        httpx = _httpx()
        async with httpx.AsyncClient(timeout=_CALL_TIMEOUT_S, trust_env=False) as http:
            try:
                answer = await http.request(method, self.url + path, json=body, headers={"X-API-Key": self._key})
            except httpx.HTTPError as error:
                raise _silent(self.url, path, error) from error
        if missing_ok and answer.status_code == _NOT_FOUND:
            return None
        if answer.status_code >= 400:
            raise _refused(path, answer.status_code, answer.content)
        return answer.json() if answer.content else {}


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    """Events from the envelopes of a stream: a byte of flags, four of length, a message."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= 5:
            flags, size = struct.unpack(">BI", buffer[:5])
            if len(buffer) < 5 + size:
                break
            message = json.loads(buffer[5 : 5 + size] or b"{}")
            del buffer[: 5 + size]
            if flags & _COMPRESSED:
                raise SandboxError("a machine's agent compresses its answers, which was not asked for")
            if flags & _END_OF_STREAM:
                if "error" in message:
                    raise SandboxError(f"a machine's agent failed: {message['error']}")
                return
            event = _event(message.get("event", {}))
            if event is not None:
                yield event
    raise SandboxError("a machine's agent hung up in the middle of a command")


def _event(event: Mapping[str, Any]) -> Event | None:
    if "start" in event:
        return Event(pid=int(event["start"].get("pid", 0)))
    if "data" in event:
        for stream, name in ((1, "stdout"), (2, "stderr")):
            if name in event["data"]:
                return Event(stream=stream, data=base64.b64decode(event["data"][name]))
    if "end" in event:
        return Event(code=int(event["end"].get("exitCode", 0)))
    return None  # a sign of life


def _agent_headers(machine: Machine, user: str) -> dict[str, str]:
    named = base64.b64encode(f"{user}:".encode()).decode()
    return {**machine.headers, "authorization": f"Basic {named}", "connect-protocol-version": "1"}


def _refused(path: str, status: int, content: bytes) -> SandboxError:
    said = content[:300].decode(errors="replace")
    hint = f": check {KEY_VARIABLE}" if status in (401, 403) else ""
    return SandboxError(f"{path} was refused with {status}: {said}{hint}")


def _silent(url: str, path: str, error: Exception) -> SandboxError:
    return SandboxError(f"{url} gave no answer to {path} ({type(error).__name__}: {error}): can it be reached?")


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError(f"sandboxes of E2B need httpx: {to_install('sandbox')}") from error
    return httpx
