"""Task folders in Harbor's format."""

import dataclasses
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.tasks.harbor import HarborTask, HarborTasks
from agar.envs.tasks.source import load_tasks
from agar.errors import ConfigError

TASK = HarborTask(
    name="greet",
    instruction="Write hello to greeting.txt.",
    repository={"src/main.py": b"print()\n", "raw.bin": b"\xff\x00"},
    tests={"test.sh": b"grep -q hello greeting.txt && echo 1 > /logs/verifier/reward.txt\n", "data/x": b"x"},
    solution={"solve.sh": b"echo hello > greeting.txt\n"},
    agent_timeout_s=90.5,
    memory_mib=512,
    metadata={"difficulty": "easy", "line": 'quotes " and \\ and \n', "count": 3, "tags": ["a", "b"]},
)


@pytest.fixture
def by_hand(tmp_path):
    """A folder as the format's own documentation shows it, with a Dockerfile of one's choice."""

    def write(dockerfile: str, settings: str = "", **files: str) -> Path:
        folder = tmp_path / "tasks" / "hello"
        content = {
            "task.toml": f'schema_version = "1.1"\n[metadata]\nauthor_name = "x"\n{settings}',
            "instruction.md": "Say hello.\n",
            "environment/Dockerfile": dockerfile,
            "environment/app/main.py": "1",
            "environment/app/pkg/mod.py": "2",
            "environment/notes.md": "3",
            "tests/test.sh": "exit 0\n",
            **files,
        }
        for path, text in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return write


def test_what_is_written_is_read_again(tmp_path):
    folder = TASK.write(tmp_path)
    assert HarborTask.read(folder) == TASK
    assert (folder / "environment" / "repository" / "src" / "main.py").read_bytes() == b"print()\n"
    with pytest.raises(ConfigError, match="is there already"):
        TASK.write(tmp_path)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",))),
        st.recursive(st.text(st.characters(exclude_categories=("Cs",))) | st.booleans() | st.integers(-9, 9), st.lists),
        max_size=4,
    )
)
def test_metadata_is_written_as_it_is(metadata):
    with tempfile.TemporaryDirectory() as folder:
        written = dataclasses.replace(TASK, metadata=metadata).write(Path(folder))
        assert HarborTask.read(written).metadata == metadata


def test_metadata_that_a_file_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="metadata holds"):
        dataclasses.replace(TASK, metadata={"a": None}).write(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dockerfile", "files"),
    [
        ("FROM a\nWORKDIR /app\nCOPY app/ .\n", {"main.py", "pkg/mod.py"}),
        ("FROM a\nCOPY app /srv/x\nWORKDIR /srv\n", {"x/main.py", "x/pkg/mod.py"}),
        (
            "# why\nFROM a AS base\nWORKDIR /app\nCOPY notes.md \\\n  app/main.py docs/\n",
            {"docs/notes.md", "docs/main.py"},
        ),
        ("FROM a\nWORKDIR /app\nCOPY notes.md renamed.md\n", {"renamed.md"}),
        ("FROM a\nWORKDIR /app\nWORKDIR sub\nCOPY notes.md .\n", {"notes.md"}),
    ],
)
def test_a_dockerfile_that_only_copies_is_understood(by_hand, dockerfile, files):
    task = HarborTask.read(by_hand(dockerfile))
    assert (set(task.repository), task.unbuilt, task.image) == (files, (), "a")


@pytest.mark.parametrize(
    ("dockerfile", "line"),
    [
        ("FROM a\nRUN apt-get update\n", "RUN apt-get update"),
        ("FROM a\nCOPY --from=b /x /y\n", "COPY --from=b /x /y"),
        ("FROM a\nWORKDIR /app\nCOPY notes.md /etc/notes\n", "COPY to /etc/notes"),
        ("FROM a\nWORKDIR /app\nCOPY ../../secret .\n", "COPY ../../secret ."),
        ("FROM a\nFROM b\n", "FROM b"),
    ],
)
def test_what_would_have_to_be_built_is_named(by_hand, dockerfile, line):
    assert HarborTask.read(by_hand(dockerfile)).unbuilt == (line,)


def test_an_image_of_its_own_is_named(by_hand):
    task = HarborTask.read(by_hand("FROM a\n", '[environment]\ndocker_image = "them/it:1"\n'))
    assert task.unbuilt == ("docker_image = them/it:1",)


def test_settings_of_either_spelling_are_read(by_hand):
    settings = "[agent]\ntimeout_sec = 30\n[verifier]\ntimeout_sec = 7.5\n[environment]\nallow_internet = true\n"
    task = HarborTask.read(by_hand("FROM a\n", settings + "memory_mb = 300\n"))
    assert (task.agent_timeout_s, task.verifier_timeout_s, task.memory_mib) == (30.0, 7.5, 300)
    assert HarborTask.read(by_hand("FROM a\n", '[environment]\nmemory = "2G"\n')).memory_mib == 2048


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"task.toml": "version ="}, "no task in Harbor's format"),
        ({"task.toml": "agent = 3"}, "agent must be a table"),
        ({"task.toml": "[agent]\ntimeout_sec = -1"}, "timeout_sec must be a positive number, got -1"),
        ({"task.toml": "[agent]\ntimeout_sec = true"}, "must be a positive number, got True"),
        ({"task.toml": "[verifier]\ntimeout_sec = nan"}, "must be a positive number, got nan"),
        ({"task.toml": "[verifier]\ntimeout_sec = inf"}, "must be a positive number, got inf"),
        ({"task.toml": "[environment]\nmemory_mb = inf"}, "must be a positive number, got inf"),
        ({"environment/Dockerfile": "FROM a\nCOPY 'x"}, "no task in Harbor's format: No closing quotation"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(by_hand, files, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        HarborTask.read(by_hand("FROM a\n", **files))


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("environment/app/key", "../../../../secret"),
        ("environment/app/all", "../../../.."),
        ("environment/app/pkg/deep", "../../../../../secret"),
        ("tests/data", "../../../secret"),
        ("solution", "../.."),
        ("instruction.md", "../../secret"),
        ("task.toml", "../../secret"),
    ],
)
@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_out_of_a_task_is_not_followed(by_hand, tmp_path, place, target, absolute):
    (tmp_path / "secret").write_text("a key")
    folder = by_hand("FROM a\nWORKDIR /app\nCOPY app/ .\n")
    link = folder / place
    link.unlink(missing_ok=True)
    link.symlink_to((link.parent / target).resolve(strict=True) if absolute else target)
    with pytest.raises(ConfigError, match=r"leads out of the task's folder"):
        HarborTask.read(folder)
    if place == "instruction.md":
        with pytest.raises(ConfigError, match=r"leads out of the task's folder"):
            HarborTasks(folder.parent)[0]


def test_a_link_within_a_task_is_the_file_and_one_to_itself_is_nothing(by_hand):
    folder = by_hand("FROM a\nWORKDIR /app\nCOPY app/ .\n")
    (folder / "environment/app/same.py").symlink_to("main.py")
    (folder / "environment/app/loop").symlink_to("loop")
    assert dict(HarborTask.read(folder).repository) == {"main.py": b"1", "pkg/mod.py": b"2", "same.py": b"1"}


@pytest.mark.parametrize("gone", ["task.toml", "instruction.md", "tests/test.sh"])
def test_a_file_that_every_task_has_is_missed(by_hand, gone):
    folder = by_hand("FROM a\n")
    (folder / gone).unlink()
    with pytest.raises(ConfigError, match=gone.split("/")[-1].split(".")[0]):
        HarborTask.read(folder)


def test_a_containers_paths_are_replaced_by_a_sandboxs():
    task = dataclasses.replace(
        TASK,
        instruction="Write /app/a.txt, not /application or /srv/app.",
        tests={"test.sh": b'[ -s "/app/a.txt" ] && echo 1 >/logs/verifier/reward.txt # \xff'},
        solution={"solve.sh": b"cd /app; touch a.txt"},
    ).moved()
    assert task.instruction == "Write /work/a.txt, not /application or /srv/app."
    assert task.tests["test.sh"] == b'[ -s "/work/a.txt" ] && echo 1 >/tmp/logs/verifier/reward.txt # \xff'
    assert (task.solution["solve.sh"], task.workdir) == (b"cd /work; touch a.txt", "/work")
    assert task.moved() == task


def test_a_folder_of_task_folders_is_a_task_set(tmp_path):
    for name in "cab":
        dataclasses.replace(TASK, name=name).write(tmp_path)
    (tmp_path / "README").write_text("no task")
    tasks = load_tasks(f"{tmp_path}@[1:]", split="heldout", env="Repair-v0")
    assert [(row.key, row.prompt, row.split, row.env) for row in (tasks[0], tasks[1])] == [  # type: ignore[index]
        (name, "Write hello to greeting.txt.", "heldout", "Repair-v0") for name in "bc"
    ]
    assert HarborTask.read(Path(HarborTasks(tmp_path)[0].payload["folder"])).name == "a"


def test_a_folder_without_tasks_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no folder with a task\.toml"):
        load_tasks(str(tmp_path))
