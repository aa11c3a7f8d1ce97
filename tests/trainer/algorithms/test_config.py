import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from agar.trainer.algorithms.config import AlgorithmConfig, CispoConfig, GrpoConfig, IcepopConfig, MisConfig, TisConfig

parse = TypeAdapter(AlgorithmConfig).validate_python


@pytest.mark.parametrize(
    ("name", "needs_group", "reduction"),
    [
        ("grpo", True, "token_mean"),
        ("dr_grpo", True, "constant"),
        ("rloo", True, "token_mean"),
        ("reinforce_plus_plus", False, "token_mean"),
        ("reinforce_plus_plus_baseline", True, "token_mean"),
        ("gspo", True, "trajectory_mean"),
        ("cispo", True, "token_mean"),
    ],
)
def test_every_algorithm_is_chosen_by_type_and_complete_by_default(name, needs_group, reduction):
    config = parse({"type": name})
    assert config.type == name
    assert config.needs_group is needs_group
    assert config.reduction == reduction


def test_only_the_algorithms_that_normalise_by_deviation_do_so_by_default():
    by_type = {name: parse({"type": name}).divide_by_std for name in ("grpo", "dr_grpo", "rloo", "gspo", "cispo")}
    assert by_type == {"grpo": True, "dr_grpo": False, "rloo": False, "gspo": True, "cispo": True}


@pytest.mark.parametrize(
    "settings", [{"type": "grppo"}, {"type": "grpo", "clip": 0.2}, {"type": "grpo", "clip_low": 0}]
)
def test_unknown_names_and_bad_bounds_are_refused(settings):
    with pytest.raises(ValidationError):
        parse(settings)


def test_a_correction_needs_the_trainers_old_logprobs():
    with pytest.raises(ValidationError, match='set old_logprobs = "trainer"'):
        GrpoConfig(correction=TisConfig())
    config = parse({"type": "grpo", "old_logprobs": "trainer", "correction": {"type": "mis", "level": "geometric"}})
    assert config.correction == MisConfig(level="geometric")


@pytest.mark.parametrize("kind", [TisConfig, MisConfig, IcepopConfig])
def test_correction_bounds_must_be_ordered(kind):
    with pytest.raises(ValidationError, match="low must be below high"):
        kind(low=2.0, high=1.0)


def test_settings_without_effect_are_refused():
    with pytest.raises(ValidationError, match="dual_clip has no meaning"):
        CispoConfig(dual_clip=3.0)
    with pytest.raises(ValidationError, match="divide_by_std"):
        parse({"type": "reinforce_plus_plus", "divide_by_std": True})


def test_planning_and_metrics_load_no_torch():
    code = "import agar.trainer.batching.plan, agar.trainer.algorithms.metrics, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=50, check=False).returncode == 0
