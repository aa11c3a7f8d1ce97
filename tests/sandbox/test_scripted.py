"""Sandboxes that are reached by running something in them, over the shell of this machine."""

import asyncio
import time

import pytest

from agar.errors import ToolError, UnsupportedPlatformError
from agar.sandbox import SandboxSpec
from agar.sandbox.scripted import ScriptedSandbox
from agar.sandbox.scripts import WRITE, Ran


class Canned(ScriptedSandbox):
    """Runs nothing; a script gets the answer that was laid out for it."""

    def __init__(self, answer):
        super().__init__(SandboxSpec(backend="fake"), backend="canned")
        self.answer, self.scripts = answer, []

    async def _run(self, job):
        await asyncio.sleep(0)
        return self.answer

    async def _script(self, script, place, stdin):
        self.scripts.append((script, place, stdin))
        return self.answer

    async def _start(self, job):
        raise UnsupportedPlatformError("not here")

    async def close(self):
        pass


def ran(**changes):
    whole = {"code": 0, "out": b"", "err": b"", "truncated": False, "killed_by": None, "wall_s": time.monotonic()}
    return Ran(**{**whole, **changes})


async def test_bytes_become_text_whatever_they_are():
    result = await Canned(ran(code=3, out=b"\xff!", err=b"e", truncated=True, killed_by="output", wall_s=2.5)).exec("x")
    assert (result.code, result.stdout, result.stderr) == (3, "�!", "e")
    assert (result.truncated, result.killed_by, result.wall_s) == (True, "output", 2.5)


async def test_files_go_through_the_scripts():
    sandbox = Canned(ran(out=b"content"))
    assert await sandbox.read("f") == b"content"
    await sandbox.write("d/f", "text")
    assert sandbox.scripts[1] == (WRITE, "/work/d/f", b"text")


async def test_what_a_script_refuses_is_for_the_agent():
    with pytest.raises(ToolError, match="No such file"):
        await Canned(ran(code=3, err=b"No such file or directory")).read("f")
