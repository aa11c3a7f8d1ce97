import math

import pytest

from agar.trainer.config import ScheduleConfig
from agar.trainer.megatron.schedule import learning_rate


def _curve(schedule: ScheduleConfig, steps: int) -> list[float]:
    return [learning_rate(step, peak=2.0, schedule=schedule) for step in range(steps)]


def test_warm_up_trains_from_the_first_step_and_reaches_the_peak():
    assert _curve(ScheduleConfig(warmup_steps=4), 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_linear_decay_ends_at_the_final_ratio_and_stays():
    curve = _curve(ScheduleConfig(kind="linear", total_steps=5, final_ratio=0.1), 8)
    assert curve == pytest.approx([2.0, 1.64, 1.28, 0.92, 0.56, 0.2, 0.2, 0.2])


def test_cosine_is_half_way_down_in_the_middle():
    schedule = ScheduleConfig(kind="cosine", warmup_steps=2, total_steps=12)
    assert learning_rate(7, peak=2.0, schedule=schedule) == pytest.approx(1.0)
    assert learning_rate(4, peak=2.0, schedule=schedule) == pytest.approx(1.0 + math.cos(math.pi * 0.2))


@pytest.mark.parametrize("bad", [{"kind": "linear"}, {"kind": "cosine", "total_steps": 3, "warmup_steps": 3}])
def test_a_decay_without_an_end_is_refused(bad):
    with pytest.raises(ValueError, match="total_steps"):
        ScheduleConfig(**bad)
