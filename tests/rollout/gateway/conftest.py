import asyncio
from collections.abc import Callable

import httpx
import numpy as np
import openai
import pytest

from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.families import Family, family_for
from agar.ledger.toy import ToyEngine, hash_logprobs, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.gateway.sealed import SealedSession
from agar.rollout.gateway.server import Gateway
from agar.types import GroupId, Message, Outcome, Reward, Sample, Sampling, TaskRow, ToolCall


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return family_for(write_toy_model(tmp_path_factory.mktemp("model")))


class Script:
    """Replies in order, each an assistant message; the last one repeats."""

    def __init__(self, family: Family, *replies: Message | str) -> None:
        self._ids = []
        for reply in replies:
            message = Message(role="assistant", content=reply) if isinstance(reply, str) else reply
            ids, mask = family.transcript([message])
            self._ids.append(ids[mask])
        self.calls = 0

    def __call__(self, prompt: np.ndarray) -> np.ndarray:
        self.calls += 1
        return self._ids[min(self.calls, len(self._ids)) - 1]


@pytest.fixture
def engine(family: Family) -> ToyEngine:
    call = ToolCall(id="", name="sh", arguments={"command": "cat 47"})
    return ToyEngine(Script(family, Message(role="assistant", content="Look.", tool_calls=(call,)), "gold", "again"))


@pytest.fixture
async def gateway(family, engine):
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        yield gateway


@pytest.fixture
async def session(gateway):
    return gateway.open(policy="main", sampling=Sampling(max_tokens=64))


@pytest.fixture
async def client(session):
    async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
        yield client


@pytest.fixture
async def http(gateway, session):
    headers = {"authorization": f"Bearer {session.id}"}
    async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers) as http:
        yield http


@pytest.fixture
def scripted(family) -> Callable[..., ToyEngine]:
    return lambda *replies, **fields: ToyEngine(Script(family, *replies), **fields)


@pytest.fixture
def sampling() -> Sampling:
    return Sampling(max_tokens=64)


class Stalling:
    """Waits until let go; counts calls, and those that were given up."""

    def __init__(self, engine):
        self.engine, self.go, self.calls, self.given_up = engine, asyncio.Event(), 0, 0
        self.asked = asyncio.Event()

    async def generate(self, ids, sampling, *, routing_key):
        self.calls += 1
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return await self.engine.generate(ids, sampling, routing_key=routing_key)


@pytest.fixture
def stalling(engine) -> Stalling:
    return Stalling(engine)


def trace_of(sealed: SealedSession) -> Trace:
    """The trace of an episode that went well."""
    return Trace(
        trajectory="t",
        group=GroupId(task="k", ordinal=0),
        role="agent",
        policy="main",
        task=TaskRow(key="k"),
        nodes=sealed.nodes,
        divergences=sealed.divergences,
        reward=Reward(total=1.0),
        outcome=Outcome.COMPLETED,
    )


@pytest.fixture(scope="session")
def trained() -> Callable[[SealedSession], list[Sample]]:
    """Seal to training rows: audited, and every trained token priced on the prefix that it has in its row."""

    def rows(sealed: SealedSession) -> list[Sample]:
        trace = trace_of(sealed)
        samples = emit(trace)
        audit([trace], samples).raise_if_broken()
        for row in samples:
            oracle = hash_logprobs(np.array([], np.int32), row.token_ids)
            assert (row.logprobs == np.where(row.loss_mask, oracle, np.float32(0))).all()
        return samples

    return rows


def restore(value):
    """A recorded value with its shortened parts as long as they were."""
    if isinstance(value, list):
        return [restore(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$text_len" in value:
        return (value["$sha256_16"] + " lorem ipsum" * (value["$text_len"] // 12 + 1))[: value["$text_len"]]
    if "$tool" in value:
        fields = {"name": value["$tool"], "description": value["$sha256_16"], "defer_loading": True, "strict": True}
        fields |= {"input_schema": {"type": "object"}, "parameters": {"type": "object"}}
        if value.get("fn_keys"):
            fields["function"] = {key: fields.get(key, []) for key in value["fn_keys"]}
        kind = "function" if {"parameters", "function"} & set(value["keys"]) else value["$tool"]
        return {key: kind if key == "type" else fields.get(key, []) for key in value["keys"]}
    return {key: restore(item) for key, item in value.items()}


@pytest.fixture
def restored() -> Callable[[object], object]:
    return restore
