import sys
from pathlib import Path

import pytest

from agar.errors import ConfigError
from agar.rollout.engines.arguments import engine_command, engine_environment, flags, own_environment, router_command
from agar.rollout.engines.config import EnginesConfig


def command(**settings):
    return engine_command(EnginesConfig(**settings), model_dir=Path("/m"), port=7, version=3, index=2)


def value_of(words, flag):
    return words[words.index(flag) + 1]


def test_flags_follow_the_values():
    table = {"sleep_on_idle": True, "off": False, "unset": None, "tp_size": 2, "names": ["a", "b"]}
    assert flags(table) == ["--sleep-on-idle", "--tp-size", "2", "--names", "a", "b"]


def test_cpu_engine_runs_in_float32_without_kernels_and_sleeps_when_idle():
    words = command(python="/engine/python")
    assert words[:3] == ["/engine/python", "-m", "sglang.launch_server"]
    assert value_of(words, "--dtype") == "float32"
    assert value_of(words, "--attention-backend") == "torch_native"
    assert value_of(words, "--weight-version") == "3"
    assert "--sleep-on-idle" in words
    assert "--incremental-streaming-output" in words


def test_passed_through_arguments_win_over_defaults():
    words = command(sglang={"dtype": "bfloat16", "sleep_on_idle": False, "chunked_prefill_size": 512})
    assert value_of(words, "--dtype") == "bfloat16"
    assert "--sleep-on-idle" not in words
    assert value_of(words, "--chunked-prefill-size") == "512"


def test_gpu_engine_takes_its_own_devices_and_no_cpu_flag():
    words = command(device="cuda", sglang={"tp_size": 2})
    assert value_of(words, "--base-gpu-id") == "4"
    assert "torch_native" not in words
    assert "SGLANG_USE_CPU_ENGINE" not in engine_environment(EnginesConfig(device="cuda"))


def test_arguments_that_the_pool_owns_are_refused():
    with pytest.raises(ConfigError, match="port"):
        command(sglang={"port": 1})


def test_routers_keep_a_session_with_its_engine():
    smg = router_command(EnginesConfig(), port=1, metrics_port=2)
    old = router_command(EnginesConfig(router="sglang-router"), port=1, metrics_port=2)
    assert smg[:4] == [sys.executable, "-m", "smg", "launch"]
    assert value_of(smg, "--policy") == "consistent_hashing"
    assert old[:3] == [sys.executable, "-m", "sglang_router.launch_router"]
    assert value_of(old, "--policy") == "manual"
    passed = EnginesConfig(router_args={"policy": "round_robin"})
    assert value_of(router_command(passed, port=1, metrics_port=2), "--policy") == "round_robin"


def test_shims_are_on_the_path_of_cpu_engines_only():
    assert engine_environment(EnginesConfig())["PYTHONPATH"].endswith("shim")
    assert not engine_environment(EnginesConfig(backend="fake")).get("PYTHONPATH", "").endswith("shim")


def test_no_engine_or_router_carries_the_mark_by_which_the_trainer_ends_rays_processes(monkeypatch):
    """Both start side by side: what carried the mark would be killed when the trainer closes."""
    from agar.trainer.ray import cluster

    monkeypatch.setenv(cluster._MARK, "0123")
    monkeypatch.setenv("SOMETHING_ELSE", "stays")
    for environment in (own_environment(), engine_environment(EnginesConfig(backend="fake"))):
        assert cluster._MARK not in environment
        assert environment["SOMETHING_ELSE"] == "stays"
