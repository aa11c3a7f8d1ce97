"""A wrong recipe is refused with the fix, before anything starts."""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from tests.conftest import MODEL_CONFIG
from tests.test_import_budget import HEAVY

from agar.config import resolve
from agar.errors import ConfigError
from agar.recipe.config import Recipe

RECIPE = """
[policies.main]
model = "{model}"

[policies.main.algorithm]
type = "grpo"

[[tasks]]
env = "Guess-v0"

[[evaluate]]
env = "Guess-v0"
"""

DEMONSTRATED = 'demonstrations={env="Guess-v0", phases=[{agents=[{policy="gold"}]}]}'


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL_CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def recipe(tmp_path: Path, model: Path, *overrides: str) -> Recipe:
    file = tmp_path / "recipe.toml"
    file.write_text(RECIPE.format(model=model))
    return resolve(Recipe, files=[file], overrides=overrides).config


def test_a_good_recipe_passes_and_survives_its_own_dump(tmp_path, model):
    found = recipe(tmp_path, model)
    found.check("train")
    dumped = tmp_path / "recipe.json"
    dumped.write_text(found.model_dump_json())
    assert resolve(Recipe, files=[dumped]).config == found
    assert json.loads(dumped.read_text())["rollout"]["group_size"] == 8


def test_the_date_of_chat_templates_is_that_of_the_runs_start_or_one_that_is_set(tmp_path, model):
    before = date.today()
    assert before <= recipe(tmp_path, model).ledger.today <= date.today()
    assert recipe(tmp_path, model, "ledger.today=2024-07-26").ledger.today == date(2024, 7, 26)
    file = tmp_path / "dated.toml"
    file.write_text("[ledger]\ntoday = 2024-07-26\n" + RECIPE.format(model=model))
    found = resolve(Recipe, files=[file])
    assert found.config.ledger.today == date(2024, 7, 26)
    (tmp_path / "recipe.json").write_text(found.json())
    assert resolve(Recipe, files=[tmp_path / "recipe.json"]).config.ledger.today == date(2024, 7, 26)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rollout.group_siz=4", r"group_siz.*group_size"),
        ("rollout.group_size=four", r"rollout\.group_size.*four"),
        ("rollout.group_size=0", r"rollout\.group_size.*0"),
        ("run.name=a/b", r"run\.name"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_was_expected(tmp_path, model, override, message):
    with pytest.raises(ConfigError, match=message):
        recipe(tmp_path, model, override)


@pytest.mark.parametrize(
    ("override", "command", "message"),
    [
        ("rollout.group_size=1", "train", r"rollout\.group_size = 1: grpo.*at least 2"),
        ("policies.main.model=nowhere", "train", r"policies\.main\.model = 'nowhere': there is no such folder"),
        ("policies.main.loss=sft", "train", r'policies\.main\.loss = "sft"'),
        ("tasks.0.env=Gess-v0", "train", r"tasks\.0\.env.*Guess-v0"),
        ("tasks.0.policy=other", "train", r"tasks\.0\.policy = 'other'.*main"),
        ("run.steps=1", "sft", r"\[demonstrations\]"),
        ("rollout.sampling.temperature=0.7", "train", r"policies\.main\.temperature = 1, but.* = 0\.7: .*the same"),
        ("rollout.sampling.top_p=0.9", "train", r"ledger\.record\.sampler.*nothing would be trained"),
        ('ledger.record.canonicalisers=[{name="tick"}]', "rollout", "'tick' is none of the built-in ones.*uuid"),
        ("policies.main.algorithm.kl_coef=0.1", "train", r"policies\.main\.algorithm\.kl_coef = 0\.1: .*set it to 0"),
        ("tasks.0.split=tset", "rollout", r"tasks\.0\.split: .*train, heldout, got 'tset'"),
        ("evaluate.0.split=test", "eval", r"evaluate\.0\.split: .*'test'"),
        ("tasks.0.path=nowhere.jsonl", "rollout", r"tasks\.0\.path: cannot read the tasks in nowhere\.jsonl"),
        ("evaluate.0.path=tasks.csv", "eval", r"evaluate\.0\.path: 'tasks\.csv' names no tasks"),
        ("tasks.0.curriculum=agar.types:TaskRow", "rollout", r"tasks\.0\.curriculum: .*TaskRow"),
        ("tasks.0.kwargs.nope=3", "train", r"tasks\.0\.kwargs: Guess-v0 cannot be made with \['nope'\]"),
    ],
)
def test_what_no_single_field_can_know_is_checked_too(tmp_path, model, override, command, message):
    with pytest.raises(ConfigError, match=message):
        recipe(tmp_path, model, override).check(command)


def test_arguments_that_the_constructor_refuses_are_found_before_anything_starts(tmp_path, model):
    wrong = recipe(tmp_path, model, "tasks.0.env=Hunt-v0", 'tasks.0.kwargs.sandbox={backend="chroot"}')
    with pytest.raises(ConfigError, match=r"tasks\.0\.kwargs = .*chroot.*Hunt-v0 cannot be made"):
        wrong.check("rollout")


def test_two_evaluations_of_one_environment_need_names_of_their_own(tmp_path, model):
    second = '\n[[evaluate]]\nenv = "Guess-v0"\nsplit = "train"\n'
    file = tmp_path / "two.toml"
    file.write_text(RECIPE.format(model=model) + second)
    with pytest.raises(ConfigError, match=r"evaluate\.0 and evaluate\.1 are both called 'Guess-v0'.*evaluate\.1\.name"):
        resolve(Recipe, files=[file]).config.check("eval")
    file.write_text(RECIPE.format(model=model) + second + 'name = "guess-train"\n')
    found = resolve(Recipe, files=[file]).config
    found.check("eval")
    assert [evaluation.title for evaluation in found.evaluate] == ["Guess-v0", "guess-train"]


@pytest.mark.parametrize(
    ("change", "override", "message"),
    [
        ({"model_type": "gpt2"}, "run.steps=1", r"policies\.main\.model: .*'gpt2'.* llama, qwen2, qwen3"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "run.steps=1", r"policies\.main\.model: .*yarn.*llama3"),
        ({"use_sliding_window": True}, "run.steps=1", r"policies\.main\.model: .*sliding windows"),
        ({"vocab_size": 512}, "policies.main.parallel.tp_size=4", r"over 4 ranks: change policies\.main\.parallel\.tp"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_where_it_would_be_and_may_play(
    tmp_path, model, change, override, message
):
    (model / "config.json").write_text(json.dumps(MODEL_CONFIG | change))
    sft = (DEMONSTRATED, "policies.main.loss=sft")
    for command, overrides in (("train", ()), ("sft", sft)):
        with pytest.raises(ConfigError, match=message):
            recipe(tmp_path, model, override, *overrides).check(command)
    for command in ("eval", "rollout"):
        recipe(tmp_path, model, override).check(command)


def test_a_recipe_is_checked_without_what_trains_and_serves(tmp_path, model):
    (file := tmp_path / "recipe.toml").write_text(RECIPE.format(model=model))
    code = (
        "import sys; from pathlib import Path\n"
        "from agar.config import resolve; from agar.recipe.config import Recipe\n"
        f"resolve(Recipe, files=[Path({str(file)!r})]).config.check('train')\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=50)
    assert answer.stdout.strip() == "[]", answer.stdout + answer.stderr


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_model_folder_is_refused_by_file(tmp_path, model, name):
    (model / name).unlink()
    with pytest.raises(ConfigError, match=r"lacks.*(json|safetensors)"):
        recipe(tmp_path, model).check("train")


def test_another_temperature_is_fine_where_both_sides_have_it(tmp_path, model):
    recipe(tmp_path, model, "rollout.sampling.temperature=0.7", "policies.main.temperature=0.7").check("train")
    recipe(tmp_path, model, "rollout.sampling.temperature=0").check("rollout")  # nothing is scored


@pytest.mark.parametrize(
    ("overrides", "command", "message"),
    [
        (['engines.urls=["http://a:1"]'], "eval", r"engines\.urls = \['http://a:1'\].*\['main', 'other'\].*overwrite"),
        (
            ["tasks.0.policy=other"],
            "train",
            r"policies\.main would be started and never trained: no \[\[tasks\]\] table",
        ),
        (
            [],
            "train",
            r"policies\.other would be started and never trained: no \[\[tasks\]\] table has policy = 'other'",
        ),
        ([DEMONSTRATED], "sft", r"policies\.other would .*: not the \[demonstrations\] table has policy = 'other'"),
    ],
)
def test_every_policy_needs_engines_and_something_to_learn_from(tmp_path, model, overrides, command, message):
    with pytest.raises(ConfigError, match=message):
        recipe(tmp_path, model, f"policies.other.model={model}", *overrides).check(command)


def test_several_policies_that_all_play_pass(tmp_path, model):
    both = 'tasks=[{env="Guess-v0"}, {env="Guess-v0", policy="other"}]'
    recipe(tmp_path, model, f"policies.other.model={model}", both).check("train")
    recipe(tmp_path, model, 'engines.urls=["http://a:1"]').check("train")
    recipe(tmp_path, model, f"policies.other.model={model}").check("eval")  # it need not be trained then


def test_demonstrations_are_imitated_at_temperature_1(tmp_path, model):
    sft = (DEMONSTRATED, "policies.main.loss=sft")
    recipe(tmp_path, model, *sft).check("sft")
    with pytest.raises(ConfigError, match=r"policies\.main\.temperature = 0\.7: .*set it to 1"):
        recipe(tmp_path, model, *sft, "policies.main.temperature=0.7").check("sft")


def test_tokens_of_older_weights_need_a_correction_where_the_trainers_logprobs_stand_for_the_engines(tmp_path, model):
    stale = ("rollout.max_staleness=1", "policies.main.algorithm.old_logprobs=trainer")
    with pytest.raises(ConfigError, match=r"max_staleness = 1 .*policies\.main\.algorithm\.correction"):
        recipe(tmp_path, model, *stale).check("train")
    recipe(tmp_path, model, *stale, 'policies.main.algorithm.correction={type="tis"}').check("train")
    recipe(tmp_path, model, *stale, "rollout.max_staleness=0").check("train")


def test_one_attempt_is_enough_for_an_algorithm_without_groups(tmp_path, model):
    recipe(tmp_path, model, "rollout.group_size=1", "policies.main.algorithm.type=reinforce_plus_plus").check("train")


def test_a_table_that_leaves_out_a_path_gets_its_default(tmp_path, model):
    assert recipe(tmp_path, model, "run.steps=1").run.dir == Path("runs")


def test_every_default_keeps_its_own_bounds(tmp_path, model):
    """Defaults are not validated on use, so they are here: the dumped defaults must be a valid recipe."""
    dumped = tmp_path / "defaults.json"
    dumped.write_text(recipe(tmp_path, model).model_dump_json())
    resolve(Recipe, files=[dumped])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agent.timeout_s=600", r"agent\.timeout_s = 600 is not below rollout\.episode_timeout_s = 600"),
        ('agent.sandbox.mounts={"/opt/x"="/nowhere/x"}', r"agent\.sandbox\.mounts: there is no /nowhere/x"),
    ],
)
def test_a_harness_is_checked_against_the_rest_and_the_machine(tmp_path, model, override, message):
    harness = ("agent.type=harness", 'agent.command=["true"]')
    recipe(tmp_path, model, *harness).check("train")
    with pytest.raises(ConfigError, match=message):
        recipe(tmp_path, model, *harness, override).check("train")
    if "mounts" in override:
        recipe(tmp_path, model, *harness, override, "agent.isolation=none").check("train")
