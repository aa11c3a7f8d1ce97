"""Unmodified programs hunt gold: a fake engine behind the real client and gateway says what a good hunter would."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.agents.harness.conftest import Gold, Played, Script

from agar.agents.config import HarnessConfig
from agar.ledger.trace import Trace
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.gateway.server import Gateway
from agar.sandbox import SandboxSpec
from agar.trainer.algorithms.config import GrpoConfig
from agar.trainer.batching.plan import plan_step
from agar.types import Ids, Message, Outcome, Sample, ToolCall

ROOT = Path(__file__).resolve().parents[4]
INSIDE = "/opt/clients"
"""Where a sandbox sees the environment of the clients: outside it may lie anywhere, in the sandbox's /tmp too."""
FILES = {"47": "box 12\n", "12": "gold 29\n"}


def call(name: str, text: str = "", /, **arguments: str) -> Message:
    """What a model says that calls a tool."""
    return Message(role="assistant", content=text, tool_calls=(ToolCall(id="", name=name, arguments=arguments),))


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder of the environment in `requirements/clients.txt`, built where it is not there yet."""
    build = [sys.executable, str(ROOT / "requirements" / "build.py"), "--only", "clients"]
    answer = subprocess.run(build, capture_output=True, text=True, timeout=1500)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return Path(answer.stdout.splitlines()[-1])


@pytest.fixture
def sandboxed(clients: Path) -> Callable[..., HarnessConfig]:
    """Settings of a program of that environment in a sandbox that sees it and its Python."""

    def settings(*command: str, **fields) -> HarnessConfig:
        python = (clients / "bin" / "python").resolve().parents[1]
        mounts = {INSIDE: clients} | ({} if python.is_relative_to("/usr") else {str(python): python})
        spec = SandboxSpec(memory_mib=2048, pids=128, mounts=mounts)
        return HarnessConfig(command=command, sandbox=spec, **{"timeout_s": 200.0, **fields})

    return settings


@pytest.fixture
def hunt(family, rows):
    """Let a program hunt with a model that says these things, and look at the record it leaves."""

    async def play(
        config: HarnessConfig, says: Sequence[Message | str] | Callable[[Ids], Ids]
    ) -> tuple[Trace, list[Sample]]:
        script = says if callable(says) else Script(family, says)
        async with hunting(family, script) as (engine, play):
            trace = await play(config, env=lambda: Gold(files=FILES))
            assert play.gateway.open_sessions == 0
        assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, 1.0), (trace.reason, trace.meta)
        assert script.calls == len(trace.nodes)
        samples = rows(trace)
        for sample in samples:
            check_prices(engine, sample)
        check_batch(samples)
        return trace, samples

    return play


@asynccontextmanager
async def hunting(family, script):
    async with (
        FakeEngine(
            vocab_size=family.tokenizer.vocabulary_size, script=lambda ids, _: script(ids).tolist(), version=3
        ) as engine,
        RouterClient(engine.url) as client,
        Gateway(engines={"main": client}, families={"main": family}) as gateway,
    ):
        yield engine, Played(gateway, client)


def check_prices(engine: FakeEngine, sample: Sample) -> None:
    """The engine prices every trained token anew on the prefix that it has in its row: the same number, bit for bit."""
    for place in sample.loss_mask.nonzero()[0]:
        assert sample.logprobs[place] == engine.model.logprob(sample.token_ids[:place], int(sample.token_ids[place]))
        assert sample.policy_versions[place] == 3


def check_batch(samples: Sequence[Sample]) -> None:
    """With a worse attempt at the same task beside it, all of it goes into an optimiser step."""
    worse = [sample.but(trajectory="worse", reward=0.0) for sample in samples]
    plan = plan_step([*samples, *worse], algorithm=GrpoConfig(), tokens_per_microbatch=16_384)
    assert plan.trajectories == 2
    assert plan.trained_tokens == 2 * sum(int(sample.loss_mask.sum()) for sample in samples) > 0
    assert all((row.advantages[row.loss_mask] != 0).all() for rank in plan.microbatches for row in rank)
