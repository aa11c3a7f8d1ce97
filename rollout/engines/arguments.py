"""Command lines and environments of the processes that the pool starts: the one file that knows their flags."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agar.errors import ConfigError
from agar.rollout.engines.config import EnginesConfig
from agar.rollout.engines.cpu import CPU_ARGUMENTS, cpu_environment
from agar.rollout.engines.installation import engine_python

HOST = "127.0.0.1"
RAY_MARK = "AGAR_RAY_CLUSTER"
"""Set by `trainer/ray/cluster.py`, which this room cannot import."""
_OWNED = frozenset({"model_path", "host", "port", "weight_version"})


def flags(arguments: Mapping[str, Any]) -> list[str]:
    """Turn `{"sleep_on_idle": True, "tp_size": 2}` into `["--sleep-on-idle", "--tp-size", "2"]`.

    True is a bare flag; False and None leave the argument out; a list repeats values after one flag.
    """
    words: list[str] = []
    for name, value in arguments.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            words += [str(item) for item in value]
        elif value is not True:
            words.append(str(value))
    return words


def engine_command(config: EnginesConfig, *, model_dir: Path, port: int, version: int, index: int) -> list[str]:
    """Command line of one engine.

    Args:
        config: settings of the pool.
        model_dir: Hugging Face directory of the first weights.
        port: port to listen on.
        version: policy version of these weights.
        index: number of the engine on this machine; picks its devices.

    Raises:
        ConfigError: `config.sglang` sets an argument that the pool owns.
    """
    taken = sorted(_OWNED & set(config.sglang))
    if taken:
        raise ConfigError(f"engines.sglang sets {', '.join(taken)}, which the pool sets itself: remove it")
    own: dict[str, Any] = {"model_path": model_dir, "host": HOST, "port": port, "weight_version": version}
    if config.backend == "fake":
        return [sys.executable, "-m", "agar.rollout.engines.fake", *flags(own | config.sglang)]
    # The warm-up request would only repeat what the pool's own health check does.
    # A stream that repeats all tokens with each would send the square of a reply.
    own |= {"enable_metrics": True, "skip_server_warmup": True, "incremental_streaming_output": True}
    if config.device == "cpu":
        own |= CPU_ARGUMENTS
    else:
        own["base_gpu_id"] = index * int(config.sglang.get("tp_size", 1)) * int(config.sglang.get("pp_size", 1))
    python = engine_python(config) or sys.executable
    return [python, "-m", "sglang.launch_server", *flags(own | config.sglang)]


def own_environment() -> dict[str, str]:
    """This process's environment, without the mark that it carries for a moment while Ray starts beside the engines.

    The trainer's watchdog kills whatever has that mark once the trainer closes.
    """
    return {name: value for name, value in os.environ.items() if name != RAY_MARK}


def engine_environment(config: EnginesConfig) -> dict[str, str]:
    """Environment of one engine process: this process's own, and what the engine needs on top."""
    environment = own_environment()
    if config.backend == "fake":
        return environment
    environment |= {
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        # /health stays free of generation (the router asks often); the pool asks /health_generate itself.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
    }
    if config.device == "cpu":
        environment |= cpu_environment()
    return environment


def router_command(config: EnginesConfig, *, port: int, metrics_port: int) -> list[str]:
    """Command line of the router; workers join it later, over HTTP.

    The router must not retry by itself for long, or a call outlives the engines' publish: agar's client retries.
    """
    own: dict[str, Any] = {
        "host": HOST,
        "port": port,
        "prometheus_host": HOST,
        "prometheus_port": metrics_port,
        "health_check_interval_secs": 5,
        "health_check_timeout_secs": 5,
        "health_failure_threshold": 2,
        "health_success_threshold": 1,
        "retry_max_retries": 2,
        "request_timeout_secs": int(config.attempt_timeout_s) + 60,
        "worker_startup_check_interval": 1,
    }
    if config.router == "smg":
        own |= {
            "policy": "consistent_hashing",
            "disable_tokenizer_autoload": True,
            "shutdown_grace_period_secs": 1,
            "log_level": "warn",
        }
        return [sys.executable, "-m", "smg", "launch", *flags(own | config.router_args)]
    own |= {"policy": "manual", "log_level": "warn"}
    return [sys.executable, "-m", "sglang_router.launch_router", *flags(own | config.router_args)]
