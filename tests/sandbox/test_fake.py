"""The scripted backend plays what a test tells it to."""

import pytest

from agar.errors import SandboxError, ToolError
from agar.sandbox import ExecResult, Sandbox, SandboxSpec, create
from agar.sandbox.fake import FakeSandbox

SPEC = SandboxSpec(backend="fake", output_bytes=100, disk_mib=1)


def test_it_satisfies_the_protocol():
    assert isinstance(create(SPEC), Sandbox)
    assert isinstance(create(SPEC), FakeSandbox)


async def test_a_script_sees_the_command_and_its_answer_is_the_result():
    def script(call):
        call.files["/work/made"] = call.stdin
        return ExecResult(code=7, stderr=" ".join(call.words) + call.env["A"] + call.cwd)

    async with FakeSandbox(SPEC, script=script) as sandbox:
        result = await sandbox.exec(["x", "y"], env={"A": "1"}, cwd="d", stdin="in")
        assert (result.code, result.stderr) == (7, "x y1/work/d")
        assert await sandbox.read("made") == b"in"
        assert [call.words for call in sandbox.calls] == [("x", "y")]


async def test_a_scripted_fault_is_raised():
    sandbox = FakeSandbox(SPEC, script=lambda call: SandboxError("died"))
    with pytest.raises(SandboxError, match="died"):
        await sandbox.exec("true")


async def test_limits_on_time_output_and_disk_hold():
    sandbox = FakeSandbox(SPEC, script=lambda call: "x" * 101, latency_s=0.05)
    assert (await sandbox.exec("go", timeout_s=0.01)).killed_by == "timeout"
    result = await sandbox.exec("go")
    assert (result.killed_by, result.truncated, len(result.stdout)) == ("output", True, 100)
    with pytest.raises(ToolError, match="No space"):
        await sandbox.write("f", b"x" * (1 << 20) + b"x")


async def test_the_built_in_shell_knows_a_few_commands():
    async with create(SPEC) as sandbox:
        await sandbox.write("47", "box 12")
        assert (await sandbox.exec("cat 47; echo; pwd")).stdout == "box 12\n/work\n"
        assert (await sandbox.exec("cat 'unbalanced")).code == 2
        assert (await sandbox.exec("python3")).code == 127
        assert (await sandbox.exec("false")).code == 1
