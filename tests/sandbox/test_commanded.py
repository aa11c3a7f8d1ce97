"""What every backend does with a command before it runs: the same refusals, the same audit."""

import json
import logging

import pytest

from agar.errors import ConfigError, ToolError
from agar.sandbox import ExecResult, SandboxSpec
from agar.sandbox.commanded import Commanded


class Echo(Commanded):
    """Answers with the words of a command."""

    def __init__(self):
        super().__init__(SandboxSpec(backend="fake", env={"A": "spec", "B": "spec"}), backend="echo")
        self.ran, self.closed = [], False

    async def _exec(self, job):
        self.ran.append(job)
        return ExecResult(code=0, stdout=" ".join(job.words))

    async def _start(self, job):
        self.ran.append(job)
        return job

    async def close(self):
        self.closed = True


async def test_a_command_runs_with_the_callers_variables_over_the_specs(caplog):
    with caplog.at_level(logging.INFO, "agar.sandbox.audit"):
        async with Echo() as sandbox:
            result = await sandbox.exec(["cat", "f"], cwd="d", env={"B": "mine"}, stdin="in", timeout_s=3)
    assert result.stdout == "cat f"
    [job] = sandbox.ran
    assert (job.cwd, job.stdin, job.timeout_s) == ("/work/d", b"in", 3)
    assert (job.env["A"], job.env["B"], job.extra) == ("spec", "mine", {"B": "mine"})
    [record] = caplog.records
    assert json.loads(record.getMessage())["words"] == ["cat", "f"]
    assert sandbox.closed


@pytest.mark.parametrize("word", ["x" * 200_000, "a\0b"])
async def test_what_no_system_can_run_is_told_and_runs_nothing(word):
    sandbox = Echo()
    refused = await sandbox.exec(["echo", word])
    assert refused.code == 126
    with pytest.raises(ToolError) as raised:
        await sandbox.start(["echo", word])
    assert str(raised.value) == refused.stderr.strip()
    assert not sandbox.ran


async def test_what_the_programmer_got_wrong_is_an_error():
    with pytest.raises(ConfigError, match="the command is empty"):
        await Echo().exec([])
    with pytest.raises(ConfigError, match="timeout_s must be above 0"):
        await Echo().start("true", timeout_s=0)
