"""The benchmark beside other gyms says which could not run, and why, and compares the rest within a round."""

import json
from pathlib import Path

import pytest
from tests.scripts import script

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "gyms.py"


@pytest.fixture
def gyms():
    with script(PATH) as module:
        yield module


def saying(gyms, monkeypatch, *, unreachable=False):
    """Rounds in which everything takes twice as long as in the round before."""
    speed = {"env_step.py": 0.5, "gem": 0.5, "textarena": 0.5}

    def said(command, limit_s):
        name = Path(command[-1]).name
        if command[-1] == "gyms" and unreachable:
            raise gyms.NotRunError("ERROR: No matching distribution found")
        if command[-1] == "gyms":
            return "/gyms"
        if name == "skyrl_gym":
            raise gyms.NotRunError("ImportError: no tools")
        speed[name] *= 2
        if name == "env_step.py":
            return json.dumps(dict.fromkeys([*gyms.INLINE.values(), *gyms.DRIVEN.values()], speed[name]))
        times = {"episode_ms": 3 * speed[name], "make_ms": 4 * speed[name]}
        return json.dumps({"version": "1.0", **times, **({"game_ms": 5 * speed[name]} if name == "gem" else {})})

    monkeypatch.setattr(gyms, "said", said)


def test_gyms_are_compared_with_the_same_round_and_one_that_fails_is_named(gyms, monkeypatch):
    saying(gyms, monkeypatch)
    found = gyms.measured(4)
    assert (found["gem_episode_ratio"], found["gem_make_ratio"], found["gem_game_ratio"]) == (3, 4, 5)
    assert (found["textarena"], found["textarena_episode_ratio"]) == ("1.0", 3)
    assert "textarena_game_ratio" not in found
    assert found["skyrl_gym"] == "not run: ImportError: no tools"
    assert not [name for name in found if name.startswith("skyrl_gym_")]
    assert found["agar_episode_us"] == 1e3 * 3  # the median of 1, 2, 4, 8 ms


def test_without_a_package_index_our_own_numbers_stand_and_the_reason_is_said(gyms, monkeypatch):
    saying(gyms, monkeypatch, unreachable=True)
    found = gyms.measured(1)
    assert {found[gym] for gym in gyms.GYMS} == {"not installed: ERROR: No matching distribution found"}
    assert found["agar_thread_ratio"] == 1


def test_a_program_that_fails_says_its_error_and_one_that_hangs_its_limit(gyms, tmp_path):
    program = tmp_path / "p.py"
    program.write_text(
        "import sys, time\nraise SystemExit('ValueError: no') if sys.argv[1] == 'bad' else time.sleep(60)"
    )
    with pytest.raises(gyms.NotRunError, match="ValueError: no"):
        gyms.said([gyms.sys.executable, str(program), "bad"], 60.0)
    with pytest.raises(gyms.NotRunError, match=r"slow: nothing within 0\.5 s"):
        gyms.said([gyms.sys.executable, str(program), "slow"], 0.5)
