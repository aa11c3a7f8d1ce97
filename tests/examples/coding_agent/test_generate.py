"""Tasks are seeded, split by their mistakes, and verified: by us when they are made, and here in real sandboxes."""

import asyncio
from pathlib import Path

import pytest

from agar.envs.tasks.harbor import HarborTask
from agar.envs.tasks.source import load_tasks
from agar.errors import ConfigError
from agar.examples.coding_agent import generate, verify
from agar.sandbox import SandboxSpec, create

LEVELS: list[generate.Level] = ["small", "full"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_seed_gives_the_same_task_and_another_seed_another(level: generate.Level) -> None:
    first = generate.task(level, "train", 5)
    generate.task.cache_clear()
    assert generate.task(level, "train", 5) == first
    repositories = [str(generate.task(level, "train", index).repository) for index in range(20)]
    assert len(set(repositories)) == 20


@pytest.mark.parametrize("level", LEVELS)
def test_no_held_out_mistake_is_trained_on(level: generate.Level) -> None:
    seen = {
        split: {
            (task.metadata["function"], task.metadata["wrong"])
            for task in (generate.task(level, split, index) for index in range(80))
        }
        for split in ("train", "heldout")
    }
    assert not seen["train"] & seen["heldout"]
    assert len(seen["heldout"]) > 10


@pytest.mark.parametrize("level", LEVELS)
def test_the_agent_is_told_the_function_and_not_the_line(level: generate.Level) -> None:
    for index in range(20):
        task = generate.task(level, "train", index)
        assert task.metadata["function"] in task.instruction
        text = b"\n".join(task.repository.values()).decode()
        assert task.metadata["right"] not in task.instruction
        assert text.count(task.metadata["wrong"]) == 1
        assert task.solution[f"mended/{task.metadata['path']}"].decode().count(task.metadata["right"]) >= 1


def test_the_repository_does_not_say_which_task_it_is() -> None:
    for split in ("train", "heldout"):
        for index in (7, 4321 % generate.SIZES[split]):
            task = generate.task("full", split, index)
            text = b"\n".join(task.repository.values()).decode()
            assert split not in text
            assert task.name not in text
            title, *_ = task.repository["README.md"].decode().splitlines()
            assert set(title.removeprefix("# ").split("-")) == {
                path.removesuffix(".py") for path in task.repository if "/" not in path and path.endswith(".py")
            }


async def right(task: HarborTask, repository: dict[str, bytes], slots: asyncio.Semaphore) -> tuple[int, int, int]:
    """Hidden calls that come out right, of how many, and the exit code of the tests that the agent sees."""
    import json

    cases = json.loads(task.tests[verify.CASES])
    async with slots, create(SandboxSpec()) as sandbox:
        for path, data in repository.items():
            await sandbox.write(path, data)
        command = ["python3", "-I", "-S", "-c", verify.SUBJECT]
        done = await sandbox.exec(command, stdin=verify.questions(cases))
        seen = await sandbox.exec(["python3", "-m", "unittest", "-q"]) if "tests/__init__.py" in repository else None
    return verify.judge(cases, done.stdout), len(cases), seen.code if seen else -1


@pytest.mark.sandbox
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("level", "count"), [("small", 50), ("full", 25)])
async def test_tests_fail_before_and_pass_after_in_a_real_sandbox(level: generate.Level, count: int) -> None:
    slots = asyncio.Semaphore(4)

    async def verified(index: int) -> None:
        task = generate.task(level, "heldout", index)
        path = f"mended/{task.metadata['path']}"
        mended = {**task.repository, task.metadata["path"]: task.solution[path]}
        (before, of, seen_before), (after, _, seen_after) = await asyncio.gather(
            right(task, dict(task.repository), slots), right(task, mended, slots)
        )
        assert before < of == after, task.name
        if level == "full":
            assert (seen_before, seen_after) == (1, 0), task.name

    await asyncio.gather(*(verified(index) for index in range(count)))


def test_folders_hold_what_was_made(tmp_path: Path) -> None:
    assert generate.main([str(tmp_path / "t"), "--level", "small", "--split", "heldout", "--count", "3"]) == 0
    rows = load_tasks(str(tmp_path / "t"))
    assert [rows[index].key for index in range(3)] == [f"small-heldout-{index}" for index in range(3)]  # type: ignore[index]
    made = generate.task("small", "heldout", 1)
    assert HarborTask.read(tmp_path / "t" / made.name) == made


@pytest.mark.sandbox
async def test_the_solution_of_a_folder_is_a_script_that_mends(tmp_path: Path) -> None:
    task = generate.task("small", "heldout", 1)
    async with create(SandboxSpec()) as sandbox:
        for folder, files in (("", task.repository), ("/tmp/solution/", task.solution)):
            for path, data in files.items():
                await sandbox.write(f"{folder}{path}", data)
        assert (await sandbox.exec("sh /tmp/solution/solve.sh")).code == 0
        assert task.metadata["right"] in (await sandbox.read(task.metadata["path"])).decode()


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="small or full"):
        generate.task("huge", "train", 0)  # type: ignore[arg-type]
