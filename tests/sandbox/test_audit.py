"""One line for every command, also for one that was cut short."""

import asyncio
import json
import logging

import pytest

from agar.errors import SandboxError
from agar.sandbox import SandboxSpec
from agar.sandbox.fake import FakeSandbox


@pytest.fixture
def audited(caplog):
    caplog.set_level(logging.INFO, logger="agar.sandbox.audit")
    return lambda: [json.loads(record.getMessage()) for record in caplog.records]


async def test_each_command_has_a_line_with_its_sandbox(audited):
    one, two = (FakeSandbox(SandboxSpec(backend="fake")) for _ in range(2))
    await one.exec("exit 3", env={"KEY": "secret"}, stdin="secret")
    await one.exec("echo hello", cwd="d")
    await two.exec(["true"])
    first, second, third = audited()
    assert first["sandbox"] == second["sandbox"] != third["sandbox"]
    assert (first["code"], first["stdin_bytes"], first["words"][-1]) == (3, 6, "exit 3")
    assert (second["cwd"], second["stdout_characters"]) == ("/work/d", 6)
    assert "KEY" in first["env"]
    assert "secret" not in json.dumps(first)


async def test_a_command_that_raised_or_was_cancelled_has_one_too(audited):
    dead = FakeSandbox(SandboxSpec(backend="fake"), script=lambda call: SandboxError("died"))
    with pytest.raises(SandboxError):
        await dead.exec("true")
    running = asyncio.create_task(FakeSandbox(SandboxSpec(backend="fake")).exec("sleep 60"))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert [line["error"] for line in audited()] == ["SandboxError", "CancelledError"]


async def test_nothing_is_written_while_nobody_listens(caplog):
    caplog.set_level(logging.WARNING, logger="agar.sandbox.audit")
    await FakeSandbox(SandboxSpec(backend="fake")).exec("true")
    assert caplog.records == []
