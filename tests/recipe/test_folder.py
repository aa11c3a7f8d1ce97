"""Run folders: checkpoints appear whole or not at all; a resume goes back to one."""

import pytest

from agar.errors import ConfigError
from agar.loop import Progress
from agar.recipe import folder as module
from agar.recipe.folder import RunFolder


def checkpoint(folder: RunFolder, step: int, *, keep: int = 9) -> None:
    partial = folder.start_checkpoint(step)
    (partial / "main").mkdir()
    folder.finish_checkpoint(partial, Progress(step=step, versions={"main": step}), b"{}", keep=keep)


def test_two_runs_of_one_name_get_folders_of_their_own(tmp_path):
    first, second = RunFolder.create(tmp_path, "a"), RunFolder.create(tmp_path, "a")
    assert first.path != second.path


def test_a_checkpoint_counts_only_once_it_is_finished(tmp_path):
    folder = RunFolder.create(tmp_path, "a")
    folder.start_checkpoint(3)
    assert folder.checkpoints() == []
    checkpoint(folder, 3)
    (found,) = folder.checkpoints()
    assert found.progress() == Progress(step=3, versions={"main": 3})
    assert found.source() == b"{}"


def test_only_the_newest_checkpoints_stay(tmp_path):
    folder = RunFolder.create(tmp_path, "a")
    for step in (2, 10, 100):
        checkpoint(folder, step, keep=2)
    assert [c.progress().step for c in folder.checkpoints()] == [10, 100]


def test_rewind_sets_later_traces_aside(tmp_path):
    folder = RunFolder.create(tmp_path, "a")
    (folder.path / "traces").mkdir()
    for step in range(1, 6):
        (folder.path / "traces" / f"step-{step:06d}.jsonl").write_text("x\n")
    checkpoint(folder, 3)
    found = folder.rewind()
    assert found is not None
    assert found.progress().step == 3
    assert len(list((folder.path / "traces").iterdir())) == 3
    assert len(list((folder.path / "before-resume").iterdir())) == 2, "nothing is thrown away"


def test_opening_something_else_says_what_was_expected(tmp_path):
    with pytest.raises(ConfigError, match=r"no recipe\.json"):
        RunFolder.open(tmp_path)


def test_rewind_sets_evaluations_aside_that_a_resume_repeats(tmp_path):
    folder = RunFolder.create(tmp_path, "a")
    (folder.path / "traces").mkdir()
    names = [f"eval-{step:06d}-Hunt-v0.jsonl" for step in (0, 3, 4)]
    for name in names:
        (folder.path / "traces" / name).write_text("x\n")
    checkpoint(folder, 3)
    folder.rewind()
    assert [path.name for path in (folder.path / "traces").iterdir()] == names[:1]


def test_rewind_deletes_what_was_left_of_an_unfinished_checkpoint(tmp_path):
    folder = RunFolder.create(tmp_path, "a")
    checkpoint(folder, 2)
    (folder.start_checkpoint(3) / "weights").write_bytes(b"much")
    folder.rewind()
    assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["step-000002"]


def test_a_checkpoint_that_is_half_deleted_is_none(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path, "a")
    checkpoint(folder, 2)

    def killed(path, **_):
        if path.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(module.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint(folder, 3, keep=1)
    monkeypatch.undo()
    assert [found.progress().step for found in folder.checkpoints()] == [3]
    folder.rewind()
    assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["step-000003"]


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_damaged_state_of_the_source_is_named_with_the_way_on(tmp_path, content):
    folder = RunFolder.create(tmp_path, "a")
    checkpoint(folder, 3)
    state = folder.path / "checkpoints" / "step-000003" / "source.json"
    state.unlink()
    if content is not None:
        state.write_text(content)
    (found,) = folder.checkpoints()
    with pytest.raises(ConfigError, match=r"step-000003 is damaged \(source.json: .*go on from the one before"):
        found.source()


@pytest.mark.parametrize("content", ["", "{", '{"steps": 3}', "[]"])
def test_a_damaged_checkpoint_is_named_with_the_way_on(tmp_path, content):
    folder = RunFolder.create(tmp_path, "a")
    checkpoint(folder, 2)
    checkpoint(folder, 3)
    (folder.path / "checkpoints" / "step-000003" / "progress.json").write_text(content)
    with pytest.raises(ConfigError, match=r"step-000003 is damaged.*go on from the one before"):
        folder.rewind()


@pytest.mark.parametrize("made_by", ["eval", "rollout", "sft"])
def test_a_command_goes_on_only_with_what_it_began(tmp_path, made_by):
    with RunFolder.new(tmp_path, "a", command=made_by, settings="{}") as folder:
        pass
    assert RunFolder.open(folder.path).path == folder.path, "any run can be looked at"
    assert RunFolder.open(folder.path, command=made_by).recipe.read_text() == "{}"
    with pytest.raises(ConfigError, match=f"the folder of an agar {made_by}, which agar train cannot go on with"):
        RunFolder.open(folder.path, command="train")


def test_a_new_folder_is_its_makers_own_until_the_end(tmp_path):
    with (
        RunFolder.new(tmp_path, "a", command="train", settings="{}") as folder,
        pytest.raises(ConfigError, match="still under way"),
        folder.claimed(),
    ):
        pass
    with folder.claimed():
        pass
