"""The real gateway, engine client and fake engine on loopback, and what passes between gateway and engine."""

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import numpy as np
from unruly.oracle import Oracle

from agar.ledger.families import Family
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.control import EngineControl
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.engines.gate import Gate
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Ids, Probe, Sampled, Sampling, WeightUpdate

PATIENCE_S = 30.0
_A_LONG_TIME_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What an engine gave the gateway for one call."""

    prompt: Ids
    sampled: Sampled


class World:
    """Servers of one event loop; an async context manager.

    Attributes:
        delivered: what engine calls came to, by routing key, in order.
        inside: engine calls under way, by routing key.
        weights: what HashLM calls the weights of each version.
        streamed: what streams came to that were sent as they were sampled, by routing key and number.
        held: replies that the engine stopped in the middle, since the start.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.vocabulary_size = family.tokenizer.vocabulary_size
        self.oracle = Oracle(family, self.vocabulary_size)
        self.engine = FakeEngine(vocab_size=self.vocabulary_size, script=self.oracle.script)
        self.oracle.holding = self._hold
        self.gate = Gate(0)
        self.weights = {0: "initial"}
        self.delivered: dict[str, list[Delivered]] = defaultdict(list)
        self.inside: dict[str, int] = defaultdict(int)
        self.streamed: dict[tuple[str, int], Sampled] = {}
        self._streams: Counter[str] = Counter()
        self.held = 0
        self.calls = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        enter = self._stack.enter_async_context
        await enter(self.engine)
        self.client = await enter(
            RouterClient(self.engine.url, gate=self.gate, vocab_size=self.vocabulary_size, retries=1)
        )
        self.gateway = await enter(
            Gateway(engines={"main": self}, families={"main": self.family}, config=GatewayConfig(ping_s=PATIENCE_S))
        )
        self.http = await enter(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)))
        self.control = EngineControl(self.engine.url, self.http)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def forget(self) -> None:
        """Begin anew with the weights of the moment."""
        self.oracle.forget()
        self.delivered.clear()
        self.engine.faults = type(self.engine.faults)()

    @property
    def url(self) -> str:
        """Where the gateway listens."""
        return self.gateway.base_url.removesuffix("/v1")

    async def generate(self, ids: Ids, sampling: Sampling, *, routing_key: str) -> Sampled:
        """`Engine.generate` of the engine client, written down."""
        return await self._written(ids, self.client.generate(ids, sampling, routing_key=routing_key), routing_key)

    async def generate_telling(
        self,
        ids: Ids,
        sampling: Sampling,
        *,
        images: Sequence[str] = (),
        routing_key: str,
        tell: Callable[[Sequence[int]], None],
    ) -> Sampled:
        """`TellingEngine.generate_telling` of the engine client, written down."""
        del images
        self._streams[routing_key] += 1
        number = self._streams[routing_key]
        call = self.client.generate_telling(ids, sampling, routing_key=routing_key, tell=tell)
        sampled = await self._written(ids, call, routing_key)
        self.streamed[routing_key, number] = sampled
        return sampled

    async def _written(self, ids: Ids, call: Coroutine[Any, Any, Sampled], routing_key: str) -> Sampled:
        prompt = np.array(ids)
        self.inside[routing_key] += 1
        self.calls += 1
        try:
            sampled = await call
        finally:
            self.inside[routing_key] -= 1
        self.delivered[routing_key].append(Delivered(prompt=prompt, sampled=sampled))
        return sampled

    def _hold(self) -> None:
        self.held += 1
        self.engine.token_s = _A_LONG_TIME_S

    async def let_others_pass(self) -> None:
        """Only the reply that is held waits for its next token."""
        await asyncio.sleep(0)
        self.engine.token_s = 0.0

    async def publish(self) -> int:
        """New weights in the middle of whatever runs, as the pool does it: hold calls back, cut, load, go on."""
        version = max(self.weights) + 1
        tensors = [f"weights {version}"]
        self.weights[version] = hashlib.sha256("".join(tensors).encode()).hexdigest()
        self.gate.close()
        await self.control.pause()
        assert await self.gate.emptied(PATIENCE_S)
        update = WeightUpdate(
            policy="main",
            version=version,
            transport="tensor",
            payload={"tensors": tensors},
            digest=self.weights[version],
            probe=Probe(token_ids=[1, 2], logprobs=[-1.0], tolerance=1.0),
        )
        await self.control.load(update, timeout_s=PATIENCE_S)
        await self.control.resume()
        self.gate.open(version)
        return version


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for a condition; the deadline names it."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {PATIENCE_S} s") from None
