"""`agar train` and `agar sft` around the training: what a resume finds, and what is said at the end."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
from tests.conftest import MODEL_CONFIG

from agar.cli import train
from agar.errors import ConfigError, EngineError
from agar.loop import Progress
from agar.recipe.folder import RunFolder
from agar.recipe.train import Result, Run


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL_CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def recipe(tmp_path, model):
    path = tmp_path / "recipe.toml"
    path.write_text(
        f'[run]\ndir = "{tmp_path / "runs"}"\nsteps = 3\n[policies.main]\nmodel = "{model}"\n'
        '[[tasks]]\nenv = "Guess-v0"\n'
    )
    return path


def prepare(given: Namespace):
    with train.prepared(given) as found:
        return found


def options(*overrides: str, resume: Path | None = None) -> Namespace:
    return Namespace(command="train", resume=resume, overrides=list(overrides))


def test_a_resume_with_other_settings_keeps_them_for_the_next_one(recipe):
    _, folder, _ = prepare(options(str(recipe)))
    prepare(options("--run.steps", "7", resume=folder.path))
    resolved, _, checkpoint = prepare(options(resume=folder.path))
    assert resolved.config.run.steps == 7
    assert checkpoint is None


def test_a_run_that_starts_over_begins_its_metrics_anew(recipe, monkeypatch):
    resolved, folder, _ = prepare(options(str(recipe)))
    folder.metrics.write_text('{"step": 1, "time_s": 2.0}\n{"step": 2, "ti')

    async def nothing(self: Run) -> Result:
        self.view.step(1, {"loop/step_s": 1.0})
        return Result(folder=self.folder, progress=Progress(step=1))

    monkeypatch.setattr(Run, "reinforce", nothing)
    train.train(resolved.config, folder, None, training=True)
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [(row["step"], row["loop/step_s"]) for row in rows] == [(1, 1.0)]


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_stopped_run_names_the_command_that_goes_on_with_it(tmp_path, capsys, command):
    folder = RunFolder.create(tmp_path, "a")
    folder.metrics.write_text("")
    train.conclude(Result(folder=folder, progress=Progress(step=2), stopped=True), command)
    assert f"go on with: agar {command} --resume {folder.path}\n" in capsys.readouterr().out


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineError("every engine is lost")])
def test_a_run_that_broke_off_says_from_where_it_can_go_on(recipe, monkeypatch, capsys, error):
    async def breaking(self: Run) -> Result:
        partial = self.folder.start_checkpoint(2)
        self.folder.finish_checkpoint(partial, Progress(step=2), b"{}", keep=1)
        raise error

    monkeypatch.setattr(Run, "reinforce", breaking)
    with pytest.raises(type(error)):
        train.run(options(str(recipe)))
    assert "go on after step 2 with: agar train --resume" in capsys.readouterr().err


def test_a_resume_says_where_it_goes_on_and_what_is_new(recipe):
    _, folder, _ = prepare(options(str(recipe)))
    resolved, _, none = prepare(options("--run.steps", "7", resume=folder.path))
    shown = ["the run has no checkpoint, so it starts over", "run.steps = 7"]
    assert train.changes(resolved, none, resumed=True) == shown
    folder.finish_checkpoint(folder.start_checkpoint(2), Progress(step=2), b"{}", keep=1)
    resolved, _, found = prepare(options(resume=folder.path))
    assert train.changes(resolved, found, resumed=True) == ["the run goes on after step 2"]


def test_a_run_that_is_under_way_is_not_resumed(recipe):
    with train.prepared(options(str(recipe))) as (_, folder, _):
        (folder.path / "traces").mkdir()
        (folder.path / "traces" / "step-000001.jsonl").write_text("x\n")
        with pytest.raises(ConfigError, match="still under way in another process"):
            prepare(options("--run.steps", "7", resume=folder.path))
        assert (folder.path / "traces" / "step-000001.jsonl").exists(), "nothing was set aside"
    assert prepare(options(resume=folder.path))[0].config.run.steps == 3


@pytest.mark.parametrize(("trained", "steps"), [(False, 3), (True, 7)])
def test_an_override_that_is_refused_does_not_stay_unless_it_was_trained_with(recipe, monkeypatch, trained, steps):
    _, folder, _ = prepare(options(str(recipe)))
    folder.finish_checkpoint(folder.start_checkpoint(2), Progress(step=2), b"{}", keep=1)

    async def refusing(self: Run) -> Result:
        if trained:
            self.folder.finish_checkpoint(self.folder.start_checkpoint(3), Progress(step=3), b"{}", keep=1)
        raise ConfigError("resume with the same [[tasks]] tables")

    monkeypatch.setattr(Run, "reinforce", refusing)
    with pytest.raises(ConfigError, match="same"):
        train.run(options("--run.steps", "7", resume=folder.path))
    assert prepare(options(resume=folder.path))[0].config.run.steps == steps


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("tokenizer.json", '{"vocab": 1}', "tokenizer"),
        ("chat_template.jinja", "{{ messages }}", "chat template"),
        ("tokenizer_config.json", '{"chat_template": "x"}', "chat template"),
    ],
)
def test_a_model_whose_link_leads_to_another_tokenizer_is_refused(tmp_path, recipe, model, name, content, what):
    first = model.rename(tmp_path / "first")
    model.symlink_to(first)
    _, folder, _ = prepare(options(str(recipe)))
    partial = folder.start_checkpoint(2)
    shutil.copytree(first, partial / "main" / "hf")
    folder.finish_checkpoint(partial, Progress(step=2), b"{}", keep=1)
    assert prepare(options(resume=folder.path))[2] is not None
    second = shutil.copytree(first, tmp_path / "second")
    (second / name).write_text(content)
    model.unlink()
    model.symlink_to(second)
    with pytest.raises(ConfigError, match=rf"the {what} of policies.main.model, {second}, is not that of the check"):
        prepare(options(resume=folder.path))


def test_a_checkpoint_that_cannot_be_used_is_refused_before_anything_is_set_aside(recipe):
    _, folder, _ = prepare(options(str(recipe)))
    saved = folder.finish_checkpoint(folder.start_checkpoint(2), Progress(step=2), b"{}", keep=1)
    (saved.path / "source.json").write_text("{")
    (folder.path / "traces").mkdir()
    (folder.path / "traces" / "step-000003.jsonl").write_text("x\n")
    with pytest.raises(ConfigError, match=r"step-000002 is damaged \(source.json"):
        prepare(options(resume=folder.path))
    assert (folder.path / "traces" / "step-000003.jsonl").exists()


def test_a_tokenizer_config_that_cannot_be_read_is_named(recipe, model):
    _, folder, _ = prepare(options(str(recipe)))
    partial = folder.start_checkpoint(2)
    shutil.copytree(model, partial / "main" / "hf")
    folder.finish_checkpoint(partial, Progress(step=2), b"{}", keep=1)
    (model / "tokenizer_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer_config.json cannot be read"):
        prepare(options(resume=folder.path))
