import json

import pytest

from agar.errors import TrainerError
from agar.trainer.ray.checkpoints import FORMAT, beside, finish, read_record


def write(directory, text):
    partial = beside(directory)
    partial.mkdir(parents=True)
    (partial / "weights").write_text(text)
    finish(partial, directory, {"steps": 3})


def test_a_checkpoint_replaces_an_older_one_and_leaves_nothing_beside_it(tmp_path):
    for text in ("old", "new"):
        write(tmp_path / "last", text)
    assert (tmp_path / "last" / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert read_record(tmp_path / "last") == {"format": FORMAT, "steps": 3}


def test_a_record_of_another_format_is_refused(tmp_path):
    (tmp_path / "trainer.json").write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(TrainerError, match="format"):
        read_record(tmp_path)


def test_a_partial_checkpoint_is_hidden_and_on_the_same_file_system(tmp_path):
    assert beside(tmp_path / "last").parent == tmp_path
    assert beside(tmp_path / "last").name.startswith(".")
