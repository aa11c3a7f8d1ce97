"""What a recipe says of an environment reaches `make`."""

import pytest

from agar.config import resolve
from agar.envs.isolation.config import ProcessLimits
from agar.errors import ConfigError
from agar.rollout.config import EvaluationConfig, RolloutConfig, TasksConfig


@pytest.mark.parametrize("kind", [TasksConfig, EvaluationConfig])
def test_where_an_environment_runs_is_handed_to_make(kind):
    assert kind(env="X-v0", kwargs={"size": 2}).make_kwargs == {"size": 2}
    isolated = kind(env="X-v0", isolation="process", limits={"memory_mib": 512})
    assert isolated.make_kwargs == {"isolation": "process", "limits": ProcessLimits(memory_mib=512)}


def test_a_place_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="isolation"):
        resolve(TasksConfig, overrides=["--env", "X-v0", "--isolation", "thread"])


def test_mixed_groups_need_something_to_be_mixed_of():
    with pytest.raises(ConfigError, match="set group_size to 2 or more"):
        resolve(RolloutConfig, overrides=["--group_size", "1", "--keep_groups", "mixed"])
