from pathlib import Path

import pytest

from agar.trainer.config import PublishConfig, TrainerConfig


@pytest.mark.parametrize(
    ("dtype", "given", "nats"),
    [("float32", None, 1e-3), ("bfloat16", None, 0.3), ("float32", 0.05, 0.05), ("bfloat16", 0.05, 0.05)],
)
def test_the_probes_tolerance_is_that_of_the_dtype_unless_it_is_set(dtype, given, nats):
    config = TrainerConfig(model=Path("start"), dtype=dtype, publish=PublishConfig(probe_tolerance=given))
    assert config.probe_tolerance_nats == nats
