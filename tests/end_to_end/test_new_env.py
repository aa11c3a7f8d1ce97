"""The tutorial, as a new user follows it: an environment, a policy made for it, two updates."""

import shutil
from pathlib import Path

import pytest
from tests.end_to_end.conftest import RunOnDisk, agar, only_run

pytestmark = [pytest.mark.sglang, pytest.mark.megatron, pytest.mark.ray, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "new_env"


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> RunOnDisk:
    """What the commands leave behind, the warm-up and the training much shortened."""
    folder = tmp_path_factory.mktemp("new_env")
    for name in ("sort.py", "train.toml"):
        shutil.copy(EXAMPLE / name, folder)
    agar("policy", "sort:Sort-v0", "runs", "--run.steps", "60", "--demonstrations.distinct", "256", cwd=folder)
    done = agar("train", "train.toml", "--run.steps", "2", "--evaluate.0.tasks", "8", cwd=folder)
    return RunOnDisk(only_run(folder / "runs", "sort"), done.stdout)


def test_two_updates_are_trained_on_rewards_of_the_environment(followed):
    steps = followed.steps()
    assert [row["step"] for row in steps] == [1, 2]
    assert all(row["trainer/grad_norm"] > 0 for row in steps)
    assert all(0 < row["rollout/reward_mean"] < 1 for row in steps)
    assert steps[0]["trainer/engine_kl_mean"] < 1e-4


def test_the_command_says_what_was_learnt(followed):
    assert "sort:Sort-v0 (heldout): reward" in followed.printed


def test_the_policy_speaks_the_environments_tokens(followed):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(followed.checkpoint() / "main" / "hf" / "tokenizer.json"))
    assert len(tokenizer.encode("<|im_start|>user\nNext?<|im_end|>", add_special_tokens=False).ids) == 3
