"""One episode through the real gateway and ledger; the engine is an oracle in this process."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

import agar
from agar.agents.chat import ChatAgent
from agar.agents.demonstrator import Demonstrator
from agar.envs.isolation.config import ProcessLimits
from agar.envs.isolation.env import ProcessEnv
from agar.envs.library.guess import Guess
from agar.envs.registry import spec
from agar.errors import DeadlineError, EngineError, SandboxError, UnsupportedPlatformError
from agar.ledger.emission import emit
from agar.ledger.families import family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig
from agar.rollout.episode import EpisodeRunner
from agar.rollout.gateway.server import Gateway
from agar.types import AgentReport, Finish, GroupId, Outcome, Sampling, TaskRow, Turn


class Echo(agar.Env):
    """Three turns, each worth 0.25; then it is over."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turns = 0
        return "Say something.", {}

    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        return f"You said {action.text}.", 0.25, self.turns == 3, False, {"reward_parts": {"polite": 0.25}}


class Raising(Echo):
    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        raise KeyError("gone")


class Losing(Echo):
    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        raise SandboxError("the sandbox died")


class Heaping(Echo):
    """Each of its rewards may be as large; two of them may not."""

    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Go on.", 9e29, False, False, {}


class HeapingParts(Echo):
    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Go on.", 0.0, False, False, {"reward_parts": {"polite": -9e29}}


class Selfish(agar.AsyncEnv):
    """Does to the task that plays it what only its owner should."""

    async def areset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        await super().areset(seed=seed, options=options)
        return "Say something.", {}

    async def astep(self, action: Turn) -> Any:
        raise asyncio.CancelledError


class Exiting(Selfish):
    async def astep(self, action: Turn) -> Any:
        raise SystemExit(3)


class SelfCancelling(Selfish):
    async def astep(self, action: Turn) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)


class ExitingAtOnce(Echo):
    def __init__(self) -> None:
        raise SystemExit(3)


class Unmakeable(Echo):
    def __init__(self) -> None:
        raise OSError("no display")


class Untold(Exception):
    def __str__(self) -> str:
        raise ValueError("bug")


class Untellable(Echo):
    def __init__(self) -> None:
        raise Untold


class Endless(Echo):
    def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Go on.", 0.0, False, False, {}


class DeadEngine:
    async def generate(self, ids: Any, sampling: Sampling, *, routing_key: str) -> Any:
        raise EngineError("nobody is there")


class LateEngine:
    async def generate(self, ids: Any, sampling: Sampling, *, routing_key: str) -> Any:
        raise DeadlineError("no reply within 600 s")


class Quitter:
    """Takes one turn and leaves."""

    async def play(self, env: Any, task: TaskRow, session: Any) -> None:
        observation, _ = await env.areset(seed=1, options={"task": task})
        await env.astep(await session.chat(observation))


class Played:
    """A gateway with one policy, and how to play on it."""

    def __init__(self, gateway: Gateway, engine: Any) -> None:
        self.gateway = gateway
        self.engine = engine

    async def __call__(self, env: type[agar.Env], *, agent: Any = None, **config: Any) -> Trace:
        runner = EpisodeRunner(
            gateway=self.gateway,
            agent=agent or ChatAgent(transport="direct"),
            make_env=lambda name, kwargs: env(),
            config=RolloutConfig(**config),
        )
        attempt = Attempt(group=GroupId(task="t", ordinal=4), index=2, task=TaskRow(key="t"), env="Echo-v0")
        return await runner.play(attempt, Sampling(max_tokens=32))


@asynccontextmanager
async def gateway_with(model: Any, engine: Any = None) -> AsyncIterator[Played]:
    family = family_for(model)
    end = sorted(family.stop_ids)[0]
    engine = engine or ToyEngine(lambda ids: np.array([65, 66, end], dtype=np.int32))
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        yield Played(gateway, engine)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_toy_model(tmp_path_factory.mktemp("toy"))


@pytest.mark.parametrize("transport", ["direct", "http"])
async def test_a_whole_episode_becomes_one_row_with_its_rewards_on_its_turns(model, transport):
    async with gateway_with(model) as play:
        async with ChatAgent(transport=transport) as agent:
            trace = await play(Echo, agent=agent)
        assert play.gateway.open_sessions == 0
    assert trace.outcome is Outcome.COMPLETED
    assert trace.reward.total == pytest.approx(0.75)
    assert trace.reward.parts == {"polite": pytest.approx(0.75)}
    assert trace.turn_rewards == {0: 0.25, 1: 0.25, 2: 0.25}
    assert trace.trajectory == "t#4/2"
    (sample,) = emit(trace)
    assert int(sample.loss_mask.sum()) == 9
    paid = np.flatnonzero(sample.rewards)
    assert len(paid) == 3
    assert sample.loss_mask[paid].all()
    assert sample.rewards.sum() == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("env", "outcome", "reason"),
    [
        (Raising, Outcome.ENV_ERROR, "gone"),
        (Losing, Outcome.INFRA_ERROR, "sandbox died"),
        (Unmakeable, Outcome.ENV_ERROR, "no display"),
        (Selfish, Outcome.ENV_ERROR, "Selfish.step raised RuntimeError: raised CancelledError"),
        (Exiting, Outcome.ENV_ERROR, "Exiting.step raised RuntimeError: raised SystemExit(3)"),
        (SelfCancelling, Outcome.ENV_ERROR, "SelfCancelling.step raised RuntimeError: raised CancelledError"),
        (ExitingAtOnce, Outcome.ENV_ERROR, "constructor raised SystemExit: 3"),
        (Untellable, Outcome.ENV_ERROR, "the environment's constructor raised Untold: its text cannot be read"),
        (Heaping, Outcome.ENV_ERROR, "Echo-v0: all rewards of the episode so far make 1.8e+30"),
        (
            HeapingParts,
            Outcome.ENV_ERROR,
            "Echo-v0: all rewards of the episode so far make a part 'polite' of -1.8e+30",
        ),
    ],
)
async def test_a_failure_of_the_environment_is_named_and_excluded(model, env, outcome, reason):
    async with gateway_with(model) as play:
        trace = await play(env)
    assert trace.outcome is outcome
    assert reason in trace.reason
    assert emit(trace) == []


@pytest.mark.parametrize("transport", ["direct", "http"])
async def test_a_dead_engine_is_infrastructure_not_a_reward_of_zero(model, transport):
    async with gateway_with(model, DeadEngine()) as play, ChatAgent(transport=transport, max_retries=0) as agent:
        trace = await play(Echo, agent=agent)
    assert trace.outcome is Outcome.INFRA_ERROR
    assert "nobody is there" in trace.reason


@pytest.mark.parametrize("transport", ["direct", "http"])
async def test_a_late_engine_is_infrastructure_not_the_episode_s_wall_clock(model, transport):
    async with gateway_with(model, LateEngine()) as play, ChatAgent(transport=transport, max_retries=0) as agent:
        trace = await play(Echo, agent=agent)
    assert trace.outcome is Outcome.INFRA_ERROR
    assert "no reply within 600 s" in trace.reason


async def test_a_machine_without_sandboxes_stops_the_run_instead_of_failing_every_episode(model):
    class Impossible(Echo):
        def step(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
            raise UnsupportedPlatformError("no user namespaces")

    async with gateway_with(model) as play:
        with pytest.raises(UnsupportedPlatformError, match="no user namespaces"):
            await play(Impossible)
        assert play.gateway.open_sessions == 0


async def test_a_demonstrator_asks_what_it_plays_for_gold(model):
    async with gateway_with(model) as play:
        trace = await play(Guess, agent=Demonstrator(tasks=spec("Guess-v0").tasks("train")))
    assert (trace.outcome, trace.reward.total, trace.meta["turns"]) == (Outcome.COMPLETED, 1.0, 1)


async def test_an_agent_that_leaves_early_counts_with_what_it_earned(model):
    async with gateway_with(model) as play:
        trace = await play(Echo, agent=Quitter())
    assert trace.outcome is Outcome.AGENT_ERROR
    assert trace.reward.total == pytest.approx(0.25)
    assert len(emit(trace)) == 1


@pytest.mark.parametrize("limits", [{"max_turns": 3}, {"max_episode_tokens": 9}], ids=["turns", "tokens"])
async def test_a_budget_truncates_an_endless_episode(model, limits):
    async with gateway_with(model) as play:
        trace = await asyncio.wait_for(play(Endless, **limits), 20)
    assert trace.outcome is Outcome.TRUNCATED
    assert len(trace.nodes) == 3
    assert len(emit(trace)) == 1


@pytest.mark.parametrize("transport", ["direct", "http"])
async def test_the_wall_clock_truncates_and_a_call_under_way_is_never_trained(model, transport):
    class Slow:
        async def generate(self, ids: Any, sampling: Sampling, *, routing_key: str) -> Any:
            await asyncio.sleep(60)

    async with gateway_with(model, Slow()) as play, ChatAgent(transport=transport) as agent:
        trace = await play(Echo, agent=agent, episode_timeout_s=0.5)
        assert play.gateway.open_sessions == 0
    assert trace.outcome is Outcome.TRUNCATED
    assert "wall clock" in trace.reason
    assert emit(trace) == []


@pytest.mark.parametrize("transport", ["direct", "http"])
async def test_the_turns_before_the_call_in_which_the_wall_clock_ends_are_trained(model, transport, monkeypatch):
    clocks, timeout = [], asyncio.timeout

    def kept(delay_s: float | None) -> asyncio.Timeout:
        clock = timeout(delay_s)
        if delay_s == 1234.5:
            clocks.append(clock)
        return clock

    monkeypatch.setattr(asyncio, "timeout", kept)

    class Stalling(ToyEngine):
        async def generate(self, ids: Any, sampling: Sampling, *, routing_key: str) -> Any:
            if len(self.prompts) == 1:
                clocks[0].reschedule(asyncio.get_running_loop().time())
                await asyncio.sleep(60)
            return await super().generate(ids, sampling, routing_key=routing_key)

    reply = family_for(model).tokenizer.encode("gold<|im_end|>", special=True)
    engine = Stalling(lambda ids: reply)
    async with gateway_with(model, engine) as play, ChatAgent(transport=transport) as agent:
        trace = await play(Endless, agent=agent, episode_timeout_s=1234.5)
        assert play.gateway.open_sessions == 0
    assert (trace.outcome, trace.reason) == (Outcome.TRUNCATED, "wall clock of 1234.5 s")
    assert (trace.open_calls, len(trace.nodes), len(emit(trace))) == (0, 1, 1)


async def test_a_cut_reply_is_kept_as_such(model):
    engine = ToyEngine(lambda ids: np.full(100, 65, dtype=np.int32))
    async with gateway_with(model, engine) as play:
        trace = await play(Echo)
    assert [node.sampled.finish for node in trace.nodes] == [Finish.LENGTH] * len(trace.nodes)


async def test_cancelling_seals_the_session(model):
    class Slow:
        async def generate(self, ids: Any, sampling: Sampling, *, routing_key: str) -> Any:
            await asyncio.sleep(60)

    async with gateway_with(model, Slow()) as play:
        task = asyncio.create_task(play(Echo))
        await asyncio.sleep(0.1)
        assert play.gateway.open_sessions == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert play.gateway.open_sessions == 0


class Reporting:
    """Takes so many turns, then says what it has to say."""

    def __init__(self, turns: int, report: AgentReport) -> None:
        self.turns, self.report = turns, report

    async def play(self, env: Any, task: TaskRow, session: Any) -> AgentReport:
        observation, _ = await env.areset(seed=1, options={"task": task})
        for _ in range(self.turns):
            observation, *_ = await env.astep(await session.chat(observation))
        return self.report


class Rehearsing(Reporting):
    """Plays a whole episode first, and then the one that counts."""

    async def play(self, env: Any, task: TaskRow, session: Any) -> AgentReport:
        await env.areset(seed=1, options={"task": task})
        while not (await env.astep("not the model's"))[2]:
            pass
        return await super().play(env, task, session)


async def test_what_counts_is_the_episode_that_the_agent_plays_last(model):
    async with gateway_with(model) as play:
        trace = await play(Echo, agent=Rehearsing(2, AgentReport(outcome=Outcome.TRUNCATED, reason="enough")))
    assert (trace.outcome, trace.meta["turns"]) == (Outcome.TRUNCATED, 2)
    assert trace.reward.total == pytest.approx(0.5)
    assert trace.reward.parts == {"polite": pytest.approx(0.5)}


@pytest.mark.parametrize("outcome", [Outcome.TRUNCATED, Outcome.AGENT_ERROR, Outcome.INFRA_ERROR])
async def test_an_agent_that_leaves_says_why_and_its_report_is_in_the_trace(model, outcome):
    report = AgentReport(outcome=outcome, reason="had enough", meta={"code": 3})
    async with gateway_with(model) as play:
        trace = await play(Echo, agent=Reporting(1, report))
    assert (trace.outcome, trace.reason) == (outcome, "had enough")
    assert trace.meta["agent"] == {"code": 3}
    assert len(emit(trace)) == outcome.trainable
    assert Trace.load(trace.dump()).meta == trace.meta


async def test_the_trace_names_the_family_that_wrote_its_prompts(model):
    async with gateway_with(model) as play:
        assert (await play(Echo)).meta["family"] == "chatml"


async def test_the_environments_word_and_a_budgets_go_before_the_agents(model):
    report = AgentReport(outcome=Outcome.AGENT_ERROR, reason="had enough")
    async with gateway_with(model) as play:
        assert (await play(Echo, agent=Reporting(3, report))).outcome is Outcome.COMPLETED
        trace = await play(Endless, agent=Reporting(3, report), max_turns=2)
    assert (trace.outcome, trace.reason) == (Outcome.TRUNCATED, "budget: turns")


@pytest.mark.parametrize(
    ("vice", "reason"),
    [
        ("os.abort()", "its process was killed by SIGABRT"),
        ("time.sleep(600)", r"did not return within 1 s; its process was ended"),
        ("return 'x' * 100_000_000, 1.0, True, False, {}", "observation of 100,000,001 characters"),
    ],
)
async def test_an_isolated_environment_that_misbehaves_is_excluded_and_never_scored(
    model, tmp_path, monkeypatch, vice, reason
):
    (tmp_path / "vices.py").write_text(
        "import os, time\nimport agar\n"
        "class Vice(agar.Env):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return 'Say something.', {}\n"
        "    def step(self, action):\n"
        f"        {vice}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = ProcessLimits(step_timeout_s=1)
    async with gateway_with(model) as play:
        trace = await play(lambda: ProcessEnv("Vice-v0", "vices:Vice", {}, limits))
    assert trace.outcome is Outcome.ENV_ERROR
    assert re.search(rf"Vice-v0.*{reason}", trace.reason)
    assert emit(trace) == []
