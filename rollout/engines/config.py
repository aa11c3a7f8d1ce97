"""Settings of the inference engines."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from agar.config import BaseConfig

PublishMode = Literal["finish", "interrupt"]


class EnginesConfig(BaseConfig):
    """How many engines run, what they run on, and how long anything may take."""

    backend: Literal["sglang", "fake"] = "sglang"
    """What is started: SGLang servers, or fake ones (same HTTP surface, no model) to try a recipe without SGLang."""
    count: int = Field(1, ge=1, le=4096)
    """Engines to start; unused where `urls` is given."""
    urls: tuple[str, ...] = ()
    """Engines that somebody else runs, as base URLs. Their processes are never started, stopped or killed."""
    python: str = ""
    """Interpreter of the environment that holds SGLang, which pins its own versions of torch and transformers. Empty
    takes AGAR_ENGINE_PYTHON, then the one that `make env` built, then the current interpreter."""
    device: Literal["cpu", "cuda"] = "cpu"
    """What engines run on; `cpu` adds the flags and import shims of `cpu.py`."""
    router: Literal["smg", "sglang-router", "none"] = "smg"
    """Router in front of the engines; `none` talks to a single engine directly."""
    sglang: dict[str, Any] = Field(default_factory=dict)
    """Arguments passed through to SGLang, with underscores: `mem_fraction_static = 0.5`. True is a bare flag, False
    leaves a default out, a list repeats values. They win over agar's own."""
    router_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments passed through to the router, written in the same way."""
    start_timeout_s: float = Field(600.0, gt=0)
    """A server that is not ready by then has failed to start."""
    stall_timeout_s: float = Field(240.0, gt=0)
    """A starting server that writes no log line for so long has failed to start."""
    stop_grace_s: float = Field(2.0, ge=0)
    """Between asking a server to end and killing its process tree."""
    call_timeout_s: float = Field(600.0, gt=0)
    """Deadline of one model call, retries included; time in which weights are being published does not count."""
    attempt_timeout_s: float = Field(300.0, gt=0)
    """Deadline of one HTTP request of a call; a hung engine costs this much before the call goes elsewhere."""
    retries: int = Field(6, ge=0)
    """Failed replies that one call survives. Waiting for an engine to come back is bounded by `call_timeout_s`."""
    on_publish: PublishMode = "interrupt"
    """What happens to calls in flight when weights arrive: `finish` waits for them; `interrupt` cuts them and lets
    them go on under the new weights, each token keeping its own version."""
    publish_timeout_s: float = Field(600.0, gt=0)
    """Deadline of every step of a publish: calls in flight to end, weights to load, proof to arrive."""
    health_interval_s: float = Field(20.0, gt=0)
    """Between health checks of an engine; a dead process is noticed at once."""
    health_timeout_s: float = Field(30.0, gt=0)
    """An engine that does not answer a health check by then counts one failure; two in a row restart it."""
    restarts: int = Field(8, ge=0)
    """Restarts of one engine in a row, each within ten minutes of the last, before it is given up. An attached one is
    never given up."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        engines = len(self.urls) or self.count
        if self.router == "none" and engines != 1:
            raise ValueError(f'router = "none" serves one engine, got {engines}: set router = "smg" or count = 1')
        if len(set(self.urls)) != len(self.urls):
            raise ValueError(f"urls must be different engines, got {list(self.urls)}: remove the repeated one")
        if self.attempt_timeout_s > self.call_timeout_s:
            raise ValueError(
                f"attempt_timeout_s ({self.attempt_timeout_s}) is longer than call_timeout_s ({self.call_timeout_s}): "
                "lower the first"
            )
        return self
