"""Episodes of real programs over the real gateway and ledger; an oracle engine says what it is told to."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import agar
from agar.agents.config import HarnessConfig
from agar.agents.harness.harness import Harness
from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.families import Family, family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig
from agar.rollout.episode import EpisodeRunner
from agar.rollout.gateway.server import Gateway
from agar.types import GroupId, Message, Sample, Sampling, TaskRow, Turn

CALL = """
import json, os, sys, urllib.request
def ask(text, *before):
    body = {"model": "m", "messages": [*before, {"role": "user", "content": text}]}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
"""
"""What every program of these tests begins with."""


class Gold(agar.Env):
    """Wants to hear an amount; says so once more if it hears another."""

    def __init__(self, *, patience: int = 1, files: dict[str, str] | None = None) -> None:
        self.patience, self.files = patience, files or {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.answers: list[str] = []
        messages = [Message(role="system", content="Be brief."), Message(role="user", content="How much gold?")]
        return messages, {"files": self.files}

    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.answers.append(action.text)
        right = action.text == "gold 29"
        return "No. How much?", float(right), right or len(self.answers) == self.patience, False, {}


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return family_for(write_toy_model(tmp_path_factory.mktemp("model")))


class Script:
    """Replies in order, each an assistant message or a text; the last one repeats."""

    def __init__(self, family: Family, replies: Sequence[Message | str]) -> None:
        self._ids = []
        for reply in replies:
            message = Message(role="assistant", content=reply) if isinstance(reply, str) else reply
            ids, mask = family.transcript([message])
            self._ids.append(ids[mask])
        self.calls = 0

    def __call__(self, prompt: Any) -> Any:
        self.calls += 1
        return self._ids[min(self.calls, len(self._ids)) - 1]


class Played:
    """A gateway whose model says what it is told, and how to play on it."""

    def __init__(self, gateway: Gateway, engine: ToyEngine) -> None:
        self.gateway, self.engine = gateway, engine
        self.env: Gold | None = None

    async def __call__(
        self, config: HarnessConfig, *, env: Callable[[], Any] = Gold, task: TaskRow | None = None, **settings: Any
    ) -> Trace:
        def make(name: str, kwargs: Any) -> Any:
            self.env = env()
            return self.env

        runner = EpisodeRunner(
            gateway=self.gateway, agent=Harness(config), make_env=make, config=RolloutConfig(**settings)
        )
        attempt = Attempt(group=GroupId(task="t", ordinal=0), index=0, task=task or TaskRow(key="t"), env="Gold-v0")
        return await runner.play(attempt, Sampling(max_tokens=2048))


@pytest.fixture
def playing(family: Family):
    """`async with playing("reply", ...) as play`."""

    @asynccontextmanager
    async def start(*replies: Message | str, engine: Any = None):
        engine = engine or ToyEngine(Script(family, replies or ("gold 29",)))
        async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
            yield Played(gateway, engine)

    return start


@pytest.fixture
def program() -> Callable[..., HarnessConfig]:
    """Settings of a program in Python, as a plain process or in a sandbox."""

    def settings(code: str, *, isolation: str = "none", **fields: Any) -> HarnessConfig:
        python = sys.executable if isolation == "none" else shutil.which("python3", path="/usr/local/bin:/usr/bin")
        if python is None:
            pytest.skip("no python3 below /usr on this machine, so sandboxes have none")
        command = (python, "-I", "-S", "program.py", "{prompt}")
        fields = {"timeout_s": 40.0, **fields, "files": {"program.py": CALL + code, **fields.get("files", {})}}
        return HarnessConfig(command=command, isolation=isolation, **fields)

    return settings


@pytest.fixture
def rows() -> Callable[[Trace], list[Sample]]:
    """The training rows of a trace, audited; written out and read back on the way."""

    def emitted(trace: Trace) -> list[Sample]:
        trace = Trace.load(trace.dump())
        json.dumps(trace.meta)
        samples = emit(trace)
        report = audit([trace], samples)
        assert report.violations == ()
        return samples

    return emitted
