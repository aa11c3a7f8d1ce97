"""Repair-v0 and RepairSmall-v0: the tools, the tasks that they take, what the checks of environments say."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.examples.coding_agent.conftest import Repairs

from agar.envs.artifacts import matches
from agar.envs.checker import check_env
from agar.envs.registry import make, spec
from agar.envs.runner import as_async
from agar.envs.tasks.harbor import HarborTask
from agar.envs.tasks.source import load_tasks
from agar.errors import EnvError, SandboxError
from agar.examples.coding_agent import generate
from agar.examples.coding_agent.env import Repair, SmallRepair, call
from agar.sandbox import SandboxSpec
from agar.sandbox.base import ExecResult
from agar.sandbox.fake import FakeCall, FakeSandbox
from agar.types import Outcome, TaskRow, Turn

FAKE = SandboxSpec(backend="fake")
SMALL = "agar.examples.coding_agent.env:RepairSmall-v0"


@pytest.fixture
async def small():
    async with as_async(SmallRepair(sandbox=FAKE, judged=False)) as runner:
        await runner.areset(options={"task": spec(SMALL).tasks("heldout")[2]})
        yield runner


async def said(runner, turn: Turn) -> str:
    [message] = (await runner.astep(turn))[0]
    return message.text


async def test_the_tools_find_read_and_edit(small) -> None:
    known = small.env.task.metadata
    found = await said(small, call(0, "search", text=f"def {known['function']}("))
    assert found.startswith(f"{known['path']}:")
    assert known["wrong"] in await said(small, call(1, "read", path=known["path"]))
    assert await said(small, call(2, "edit", path=known["path"], old=known["wrong"], new="x")) == "done"
    assert known["wrong"] not in await said(small, call(3, "read", path=known["path"]))
    assert await said(small, call(4, "search", text="no such text")) == "nothing"


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        (
            call(0, "edit", path="README", old="a", new="b"),
            "error: old must stand in README exactly once, it is there 3 times",
        ),
        (
            call(0, "edit", path="README", old="z", new="b"),
            "error: old must stand in README exactly once, it is there 0 times",
        ),
        (
            call(0, "edit", path="README", old="", new="b"),
            "error: old must stand in README exactly once, it is there 0 times",
        ),
        (call(0, "edit", path="raw", old="a", new="b"), "error: raw is no text: change it with a command"),
        (call(0, "read", path="gone.py"), "error: 'gone.py': No such file or directory"),
        (call(0, "bash", command="ls"), "error: no tool 'bash'; there are: search, read, edit"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told(small, turn: Turn, text: str) -> None:
    await small.env.sb.write("README", "a a a")
    await small.env.sb.write("raw", b"\xff")
    assert await said(small, turn) == text


async def test_a_file_whose_name_is_no_text_is_found(small) -> None:
    await small.env.sb.write("caf\udce9.py", "needle")
    assert await said(small, call(0, "search", text="needle")) == "caf?.py:1: needle"


async def test_long_answers_lose_their_middle(small) -> None:
    await small.env.sb.write("long", "a" * 1000 + "b" * 1000)
    text = await said(small, call(0, "read", path="long"))
    assert text == "a" * 200 + "\n... 1600 characters left out ...\n" + "b" * 200


@pytest.mark.sandbox
async def test_floods_bytes_and_missing_commands_are_told_and_the_episode_can_still_be_won(repairs: Repairs) -> None:
    await repairs.start("calls")
    flood = await said(repairs.runner, call(0, "bash", command="head -c 100000000 /dev/zero | tr '\\0' x"))
    assert "characters left out" in flood or "killed (output)" in flood
    assert len(flood) < 50_000
    assert (await said(repairs.runner, call(1, "bash", command=r"printf '\377\376ok'"))).endswith("ok")
    assert "not found" in await said(repairs.runner, call(2, "bash", command="no-such-command"))
    odd = r"""mkdir sub && touch "sub/$(printf 'a\377')" && ls sub"""
    assert (await said(repairs.runner, call(3, "bash", command=odd))).startswith("a")
    await repairs.mend()
    assert await repairs.reward() == 1.0


@pytest.mark.sandbox
async def test_commands_tell_what_they_wrote_and_how_they_ended(repairs: Repairs) -> None:
    await repairs.start("calls")
    env = repairs.env
    env.command_timeout_s = 1.0
    for command, text in {
        "echo out; echo err >&2": "out\nerr\n",
        "exit 3": "exit 3",
        "true": "exit 0",
        "echo x; exit 2": "x\n\nexit 2",
        "sleep 30": "killed (timeout)",
    }.items():
        assert await said(repairs.runner, call(0, "bash", command=command)) == text
    assert "NUL" in await said(repairs.runner, call(0, "bash", command="a\0b"))
    assert "FAILED" in await said(repairs.runner, call(0, "bash", command="python3 -m unittest"))


@pytest.mark.sandbox
async def test_a_task_of_a_folder_is_the_task_that_was_written(tmp_path: Path) -> None:
    made = generate.task("small", "heldout", 0)
    made.write(tmp_path)
    rows = [load_tasks(str(tmp_path))[0], spec(SMALL).tasks("heldout")[0]]  # type: ignore[index]
    async with as_async(make(SMALL)) as runner:
        for row in rows:
            [system, user], info = await runner.areset(options={"task": row})
            assert (system.text, user.text) == ("Fix the bug.", made.instruction)
            assert {path: text.encode() for path, text in info["files"].items()} == made.repository
            reward = 0.0
            while not reward:
                _, reward, ended, _, info = await runner.astep(runner.env.unwrapped.gold())  # type: ignore[attr-defined]
                assert ended == bool(reward), info
            assert (reward, info["reward_parts"]) == (1.0, {"tests": 1.0})


@pytest.mark.sandbox
async def test_a_foreign_tasks_own_solution_is_gold(repairs: Repairs, tmp_path: Path) -> None:
    task = HarborTask(
        name="greet",
        instruction="Write hello to /app/greeting.txt.",
        repository={"README": b"x"},
        tests={"test.sh": b"grep -c hello /app/greeting.txt > /logs/verifier/reward.txt; [ -e /app/README ]\n"},
        solution={"solve.sh": b"echo hello > /app/greeting.txt\n"},
    )
    row = TaskRow(key="greet", payload={"folder": str(task.write(tmp_path))})
    [_, told], _ = await repairs.runner.areset(options={"task": row})
    assert told.text == "Write hello to /work/greeting.txt."
    await repairs.runner.astep(repairs.env.gold())
    assert (await repairs.runner.astep(repairs.env.gold()))[1] == 1.0
    await repairs.runner.areset(options={"task": row})
    await repairs.env.sb.write("greeting.txt", "good bye")
    assert await repairs.reward() == 0.0
    assert repairs.env._shelf is None, "what the judge was shown is gone"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (b"#!/no/such/shell\n", "exit 127"),
        (b"no-such-program --test > /logs/verifier/out && echo 1 > /logs/verifier/reward.txt\n", "no-such-program"),
        (b"[ ! -e /app/gone ] && echo 0 > /logs/verifier/reward.txt\n", None),
        (b"echo 0 > /logs/verifier/reward.txt; [ ! -e /app/gone ] || exit 127\n", None),
    ],
)
async def test_a_judge_that_cannot_run_is_told_from_code_that_leaves_no_reward(
    repairs: Repairs, tmp_path: Path, script: bytes, said: str | None
) -> None:
    task = HarborTask(name="odd", instruction="Do it.", repository={"README": b"x"}, tests={"test.sh": script})
    row = TaskRow(key="odd", payload={"folder": str(task.write(tmp_path))})
    await repairs.runner.areset(options={"task": row})
    await repairs.env.sb.write("gone", "x")
    if said is None:
        assert await repairs.reward() == 0.0
        return
    with pytest.raises(EnvError, match=f"leaves no reward.*{said}"):
        await repairs.reward()
    await repairs.start("calls")
    assert repairs.env._shelf is None, "what the judge was shown is gone"


async def test_a_task_whose_judge_can_be_forged_is_played_only_where_that_is_said(tmp_path: Path) -> None:
    folder = replace(generate.task("small", "train", 0), name="odd", tests={"test.sh": b"exit 0"}).write(tmp_path)
    options = {"task": TaskRow(key="odd", payload={"folder": str(folder)})}
    async with as_async(Repair(sandbox=FAKE)) as runner:
        with pytest.raises(Exception, match=r"no tests/cases\.json.*scripts = true"):
            await runner.areset(options=options)
    for settings in ({"scripts": True}, {"judged": False}):
        async with as_async(Repair(sandbox=FAKE, **settings)) as runner:
            await runner.areset(options=options)


async def test_a_task_that_must_be_built_is_refused(tmp_path: Path) -> None:
    folder = replace(generate.task("small", "train", 0), name="built").write(tmp_path)
    dockerfile = folder / "environment" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text() + "RUN pip install numpy\n")
    async with as_async(Repair(sandbox=FAKE)) as runner:
        for payload, words in (({"folder": str(folder)}, "RUN pip install"), ({"seed": 1}, "needs a folder, or level")):
            with pytest.raises(Exception, match=words):
                await runner.areset(options={"task": TaskRow(key="t", payload=payload)})


async def test_an_episode_that_is_not_judged_ends_with_nothing() -> None:
    async with as_async(SmallRepair(sandbox=FAKE, judged=False)) as runner:
        await runner.areset(seed=1)
        assert (await runner.astep("done"))[1:4] == (0.0, True, False)


async def test_a_judge_whose_sandbox_dies_is_nobodys_fault() -> None:
    class Dying(SmallRepair):
        def make_grading_sandbox(self) -> FakeSandbox:
            return FakeSandbox(FAKE, script=lambda call: SandboxError("died"))

    async with as_async(Dying(sandbox=FAKE)) as runner:
        await runner.areset(seed=1)
        known = runner.env.task.metadata  # type: ignore[attr-defined]
        await runner.astep(call(0, "edit", path=known["path"], old=known["wrong"], new=known["right"]))
        _, reward, _, truncated, info = await runner.astep("done")
    assert (reward, truncated, info["failure"]) == (0.0, True, Outcome.INFRA_ERROR)


@pytest.mark.parametrize(("missing", "failure"), [("always", True), ("once", False)])
async def test_a_judge_without_python_is_told_from_code_that_ends_as_if_there_were_none(missing, failure) -> None:
    def nothing(call: FakeCall) -> ExecResult:
        return ExecResult(code=127 if missing == "always" or len(call.stdin) else 0)

    class Bare(SmallRepair):
        def make_grading_sandbox(self) -> FakeSandbox:
            return FakeSandbox(FAKE, script=nothing)

    async with as_async(Bare(sandbox=FAKE)) as runner:
        await runner.areset(seed=1)
        known = runner.env.task.metadata  # type: ignore[attr-defined]
        await runner.astep(call(0, "edit", path=known["path"], old=known["wrong"], new=known["right"]))
        if failure:
            with pytest.raises(EnvError, match="has no python3"):
                await runner.astep("done")
        else:
            assert (await runner.astep("done"))[1:3] == (0.0, True)


@pytest.mark.parametrize(
    ("path", "brought"),
    [
        *((path, True) for path in ("a.py", "src/deep/a.py", "README.md", "data.json", "contests.py", "latest.py")),
        *((path, False) for path in ("tests/a.py", "test_a.py", "src/a_test.py", "conftest.py", "src/conftest.py")),
        *((path, False) for path in ("sitecustomize.py", ".local/lib/x/usercustomize.py", "x.pth", "a/b.pth")),
        *((path, False) for path in ("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml")),
        *((path, False) for path in ("__pycache__/a.cpython-311.pyc", "src/__pycache__/a.pyc", "sub/pytest.ini")),
    ],
)
def test_what_an_agent_may_bring_before_its_judge(path: str, brought: bool) -> None:
    assert matches(path, Repair.collects) is brought


@pytest.mark.sandbox
@pytest.mark.timeout(240)
def test_the_environment_passes_every_check() -> None:
    report = check_env(SMALL)
    assert report.ok, report
