from collections.abc import Callable

import numpy as np
import pytest

from agar.ledger.families import Family, family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall


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
def scripted(family) -> Callable[..., ToyEngine]:
    return lambda *replies, **fields: ToyEngine(Script(family, *replies), **fields)


@pytest.fixture
def sampling() -> Sampling:
    return Sampling(max_tokens=64)
