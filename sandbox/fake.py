"""A scripted sandbox for tests: a dictionary of files and a function that plays the shell. It isolates nothing.

It runs no process and touches no file of the host but in `put` and `get`. Without a script it understands the few
commands that the conformance kit and simple environments need: `true`, `false`, `exit N`, `echo WORDS`, `cat FILES`,
`sleep SECONDS`, `pwd`, joined by `;`.
"""

import asyncio
import posixpath
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agar.errors import SandboxError, ToolError
from agar.sandbox.base import ExecResult, Process, Snapshot, Transfer
from agar.sandbox.command import Command
from agar.sandbox.commanded import Commanded
from agar.sandbox.config import SandboxSpec
from agar.sandbox.fake_process import Answer, FakeProcess
from agar.sandbox.files import inside
from agar.sandbox.snapshot import files_of, forked, of_files


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCall:
    """What a script sees of one `exec`.

    Attributes:
        words: the command's arguments; a string command is `("/bin/sh", "-c", command)`.
        env: its environment.
        cwd: its working directory.
        stdin: what it reads.
        files: the sandbox's files by absolute path; a script may change them.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: bytes
    files: dict[str, bytes] = field(default_factory=dict)


Script = Callable[[FakeCall], ExecResult | str | Exception]
"""Plays a command: a string is its stdout; an exception is raised by `exec` (a `SandboxError` plays a dead sandbox)."""


class FakeSandbox(Commanded):
    """A `Sandbox` that runs nothing."""

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        script: Script | None = None,
        talk: Callable[[FakeCall], Answer | None] | None = None,
        latency_s: float = 0.0,
    ) -> None:
        """Make one.

        Args:
            spec: its limits on time, output and size hold as in a real one.
            script: plays the commands; default the few built-in ones.
            talk: plays a command that is started; where it gives None, or there is none, `cat` says what it is told,
                and any other command runs as by `exec` and has ended.
            latency_s: how long each command takes, in seconds.
        """
        super().__init__(spec, backend="fake")
        self.calls: list[FakeCall] = []
        self.files: dict[str, bytes] = {}
        self.closed = False
        self._script = script
        self._talk = talk
        self._started: list[FakeProcess] = []
        self._latency_s = latency_s

    async def _exec(self, job: Command) -> ExecResult:
        self._check_open()
        call = FakeCall(words=job.words, env=job.env, cwd=job.cwd, stdin=job.stdin, files=self.files)
        self.calls.append(call)
        began = time.monotonic()
        try:
            async with asyncio.timeout(job.timeout_s):
                await asyncio.sleep(self._latency_s)
                answer = self._script(call) if self._script else await _play(call)
        except TimeoutError:
            return ExecResult(code=137, killed_by="timeout", wall_s=time.monotonic() - began)
        if isinstance(answer, Exception):
            raise answer
        result = ExecResult(code=0, stdout=answer) if isinstance(answer, str) else answer
        return self._cut(replace(result, wall_s=time.monotonic() - began))

    async def _start(self, job: Command) -> Process:
        self._check_open()
        call = FakeCall(words=job.words, env=job.env, cwd=job.cwd, stdin=b"", files=self.files)
        answer = self._talk(call) if self._talk is not None else None
        if answer is None and job.words == ("cat",):
            answer = bytes
        result = None if answer is not None else await self._audit.of(job, self._exec(job))
        self._started.append(FakeProcess(answer, result))
        return self._started[-1]

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        self._check_open()
        target = inside(path)
        if target not in self.files:
            kind = "is a directory: name a regular file" if self._below(target) else "No such file or directory"
            raise ToolError(f"{path!r}: {kind}")
        return self.files[target]

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        self._check_open()
        target = inside(path)
        if self._below(target) or target in ("/work", "/tmp"):
            raise ToolError(f"{path!r} is a directory: name a regular file")
        content = data.encode() if isinstance(data, str) else data
        total = sum(len(other) for name, other in self.files.items() if name != target) + len(content)
        if total > self.spec.disk_mib << 20:
            raise ToolError(f"{path!r}: No space left on device: free some space")
        self.files[target] = content

    async def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        self._check_open()
        found, links = await asyncio.to_thread(_load, source)
        for relative, data in found.items():
            await self.write(posixpath.join(target, relative) if relative else target, data)
        size = sum(len(data) for data in found.values())
        return Transfer(files=len(found), size_bytes=size, skipped={"symlink": links} if links else {})

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        self._check_open()
        top = inside(source)
        if top in self.files:
            found = {"": self.files[top]}
        else:
            found = {posixpath.relpath(name, top): self.files[name] for name in self._below(top)}
        if not found and top not in ("/work", "/tmp"):
            raise ToolError(f"{source!r}: No such file or directory")
        await asyncio.to_thread(_store, found, target)
        return Transfer(files=len(found), size_bytes=sum(len(data) for data in found.values()))

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        self._check_open()
        return of_files(self.files)

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        self._check_open()
        self.files.clear()
        for path, data in files_of(snapshot).items():
            await self.write(path, data)

    async def fork(self, count: int) -> "list[FakeSandbox]":
        """See `Sandbox.fork`."""
        copies = [FakeSandbox(self.spec, script=self._script, latency_s=self._latency_s) for _ in range(count)]
        return await forked(self, copies)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self.closed = True
        self.files.clear()
        for process in self._started:
            await process.close()

    def _check_open(self) -> None:
        if self.closed:
            raise SandboxError("the sandbox is closed: make a new one")

    def _below(self, directory: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(directory + "/"))

    def _cut(self, result: ExecResult) -> ExecResult:
        limit = self.spec.output_bytes
        out, err = (text.encode() for text in (result.stdout, result.stderr))
        if max(len(out), len(err)) <= limit:
            return result
        kept = [text[:limit].decode("utf-8", "replace") for text in (out, err)]
        return replace(result, code=137, stdout=kept[0], stderr=kept[1], truncated=True, killed_by="output")


def _load(source: Path) -> tuple[dict[str, bytes], int]:
    """The files below `source` by relative path ("" for itself), and how many links were left out."""
    if not source.is_dir():
        return {"": source.read_bytes()}, 0
    items = sorted(source.rglob("*"))
    files = {p.relative_to(source).as_posix(): p.read_bytes() for p in items if p.is_file() and not p.is_symlink()}
    return files, sum(p.is_symlink() for p in items)


def _store(files: Mapping[str, bytes], target: Path) -> None:
    for relative, data in files.items():
        place = target / relative if relative else target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


async def _play(call: FakeCall) -> ExecResult:
    """The built-in commands."""
    out = err = ""
    code = 0
    for part in call.words[2].split(";") if call.words[:2] == ("/bin/sh", "-c") else [shlex.join(call.words)]:
        try:
            words = shlex.split(part)
        except ValueError as error:
            return ExecResult(code=2, stdout=out, stderr=f"{err}sh: {error}\n")
        if not words:
            continue
        name, rest = words[0], words[1:]
        if name == "exit":
            return ExecResult(code=int(rest[0]) if rest else code, stdout=out, stderr=err)
        code = 0
        if name == "sleep":
            await asyncio.sleep(float(rest[0]))
        elif name == "echo":
            out += " ".join(rest) + "\n"
        elif name == "pwd":
            out += call.cwd + "\n"
        elif name == "cat":
            text, complaint = _cat(call, rest)
            out, err, code = out + text, err + complaint, int(bool(complaint))
        elif name in ("true", "false"):
            code = int(name == "false")
        else:
            err, code = f"{err}sh: {name}: not found\n", 127
    return ExecResult(code=code, stdout=out, stderr=err)


def _cat(call: FakeCall, names: Sequence[str]) -> tuple[str, str]:
    if not names:
        return call.stdin.decode("utf-8", "replace"), ""
    out = err = ""
    for name in names:
        path = posixpath.normpath(posixpath.join(call.cwd, name))
        if path in call.files:
            out += call.files[path].decode("utf-8", "replace")
        else:
            err += f"cat: {name}: No such file or directory\n"
    return out, err
