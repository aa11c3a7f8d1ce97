"""Task sets from Hugging Face data sets; what needs the hub itself cannot be tried here."""

import json

import pytest

from agar.envs.tasks import TaskSet
from agar.envs.tasks.columns import TaskColumns
from agar.envs.tasks.hub import HubTasks
from agar.envs.tasks.source import load_tasks
from agar.errors import ConfigError

datasets = pytest.importorskip("datasets")

ROWS = [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(4)]
COLUMNS = TaskColumns(prompt="question")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def load(name, **settings):
    return HubTasks.load(str(name), COLUMNS, split="train", env="Sums-v0", **settings)


def test_a_data_set_in_memory():
    tasks = HubTasks(datasets.Dataset.from_list(ROWS), COLUMNS, name="sums", env="Sums-v0")
    assert isinstance(tasks, TaskSet)
    assert (len(tasks), tasks[-1].key, tasks[1].prompt, dict(tasks[1].payload)) == (
        4,
        "sums/3",
        "1+1?",
        {"answer": "2"},
    )


@pytest.mark.parametrize("parts", [False, True])
def test_what_save_to_disk_wrote(tmp_path, parts):
    whole = datasets.Dataset.from_list(ROWS)
    saved = datasets.DatasetDict({"train": whole, "test": whole.select([3])}) if parts else whole
    saved.save_to_disk(tmp_path / "sums")
    assert [task.prompt for task in load(tmp_path / "sums")] == [row["question"] for row in ROWS]
    if parts:
        assert [task.prompt for task in load(tmp_path / "sums", part="test")] == ["3+3?"]


def test_a_folder_of_files_through_load_dataset(tmp_path):
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "test.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    tasks = load(tmp_path / "sums", part="test")
    assert [task.payload["answer"] for task in tasks] == ["0", "2", "4", "6"]


def test_it_is_named_with_configuration_part_and_slice(tmp_path):
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "test.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    tasks = load_tasks(f"hf:{tmp_path / 'sums'}:default:test@[1:3]", COLUMNS, env="Sums-v0")
    assert [(task.key, task.prompt) for task in tasks] == [("sums/1", "1+1?"), ("sums/2", "2+2?")]


def test_what_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot load 'train' of the data set"):
        load(tmp_path / "nowhere")
