"""RouterClient: the `Engine` protocol over SGLang's `/generate`, with deadlines, counted retries and version checks."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import aiohttp
import numpy as np
import orjson
from yarl import URL

from agar.errors import DeadlineError, EngineAborted, EngineError, EngineRefused
from agar.rollout.engines.call import Call
from agar.rollout.engines.gate import Gate
from agar.rollout.engines.streamed import EVENTS, Retry, StreamedReply, Tell
from agar.serving.deadlines import Deadlines
from agar.types import Ids, Metrics, Sampled, Sampling

logger = logging.getLogger(__name__)

ROUTING_KEY_HEADER = "X-SMG-Routing-Key"
_UNAVAILABLE = {502, 503, 504}  # nobody there to answer: the router has no worker, or lost it; worth waiting for
_BACKOFF_S = (0.05, 2.0)
_LIVES_S = 10.0
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # the deadlines are ours


class RouterClient:
    """Samples tokens through a router, or straight from one engine.

    A call that a publish interrupts goes on under the new weights, and its pieces are joined: versions are per token.
    A reply sampled on another version than the one served when the call went out is thrown away and counted.

    Args:
        url: base URL of the router or the engine.
        gate: holds calls back while weights change; a gate of its own where None.
        vocab_size: ids must lie below it; checked here because an id outside the vocabulary kills an SGLang server
            (0.5.23: IndexError in the scheduler on CPU, a device assert on GPU). None checks only for negatives.
        call_timeout_s: deadline of a call, retries included, time at a closed gate excluded.
        attempt_timeout_s: deadline of one HTTP request.
        gate_timeout_s: longest wait at a closed gate.
        retries: failed replies that a call survives; an absent engine is waited for until the call's deadline.

    Attributes:
        counts: calls, tokens, continuations and retries by reason, since construction.
    """

    def __init__(
        self,
        url: str,
        *,
        gate: Gate | None = None,
        vocab_size: int | None = None,
        call_timeout_s: float = 600.0,
        attempt_timeout_s: float = 300.0,
        gate_timeout_s: float = 1800.0,
        retries: int = 6,
    ) -> None:
        self.url = url
        self.gate = gate or Gate()
        self.vocab_size = vocab_size
        self.call_timeout_s, self.attempt_timeout_s = call_timeout_s, attempt_timeout_s
        self.gate_timeout_s, self.retries = gate_timeout_s, retries
        self.counts: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None
        self._deadlines = Deadlines(min(attempt_timeout_s, call_timeout_s))

    def cut(self) -> int:
        """Drop every HTTP request that is out; their calls go on afterwards, without the tokens of the lost reply.

        For engines that do not answer an abort. Gives how many were dropped.
        """
        return self._deadlines.expire()

    @property
    def url(self) -> str:
        """Where the engines are; a pool sets it anew when its router comes up at another port."""
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._generate_url = URL(f"{self._url}/generate")

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *exc: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def metrics(self) -> Metrics:
        """Totals since construction, as `engines/<name>_count`."""
        return {f"engines/{name}_count": float(count) for name, count in sorted(self.counts.items())}

    async def generate(self, ids: Ids, sampling: Sampling, *, routing_key: str) -> Sampled:
        """Sample one reply to the prompt `ids`.

        Args:
            ids: int32 [n], n >= 1, each in the vocabulary.
            sampling: sampler and limits.
            routing_key: calls with the same key go to the same engine while it lives.

        Raises:
            EngineRefused: the engine cannot serve the request; or it has images, and engines that sample other
                prompts answered every try with HTTP 500.
            EngineError: the request is malformed, or engines kept failing beyond `retries`.
            EngineAborted: engines kept giving the call up although no publish was on.
            DeadlineError: no reply within `call_timeout_s`, or the gate stayed closed beyond its deadline.
        """
        return await self._sample(ids, sampling, (), routing_key)

    async def generate_telling(
        self, ids: Ids, sampling: Sampling, *, images: Sequence[str] = (), routing_key: str, tell: Tell
    ) -> Sampled:
        """`generate` that tells of tokens as they come; see `TellingEngine`.

        What was told stays in the reply: where an attempt is lost, the call goes on behind its tokens. A reply under a
        schema may begin anew, and is not told.
        """
        return await self._sample(ids, sampling, images, routing_key, None if sampling.json_schema else tell)

    async def generate_seeing(
        self, ids: Ids, sampling: Sampling, *, images: Sequence[str], routing_key: str
    ) -> Sampled:
        """`generate` for a prompt with images, which the engine fetches or decodes; see `SeeingEngine`."""
        return await self._sample(ids, sampling, images, routing_key)

    async def _sample(
        self, ids: Ids, sampling: Sampling, images: Sequence[str], routing_key: str, tell: Tell | None = None
    ) -> Sampled:
        prompt = np.ascontiguousarray(ids)
        self._check(prompt, sampling)
        self.counts["calls"] += 1
        call = Call(prompt, sampling, images)
        spent_s, failures, waits = 0.0, 0, 0
        failed_by: set[str] = set()
        while True:
            version, began = await self.gate.enter(self.gate_timeout_s), time.monotonic()
            stream = StreamedReply(version, tell) if tell is not None else None
            try:
                left_s = min(self.attempt_timeout_s, max(self.call_timeout_s - spent_s, 0.001))
                # A failed call leaves its engine: another key goes to another one, where there are several.
                key = f"{routing_key}#{failures}" if failures else routing_key
                reply = await self._post(call.body(stream=stream is not None), key, left_s, stream)
                reason = call.take(reply, version)
            except Retry as error:
                reason = error.reason
                if stream is not None and not call.take(stream.reply, None):
                    reason = ""  # lost behind its last token
            finally:
                self.gate.leave()
            spent_s += time.monotonic() - began
            if not reason:
                sampled = call.sampled()
                self.counts["tokens"] += len(sampled)
                return sampled
            if images and reason == "http_500":
                began = time.monotonic()
                if not await self._lives(call, key):
                    reason = "http_500_to_all"
                spent_s += time.monotonic() - began
            if reason in {"aborted", "attempt_timeout"} and (self.gate.closed or self.gate.version != version):
                self.counts["continued"] += 1  # a publish cut it: wait at the gate and go on
                continue
            self.counts[f"retried_{reason}"] += 1
            if reason in {"connection", "unavailable"}:
                waits += 1
            else:
                failures += 1
                failed_by.add(reason)
            if failures > self.retries:
                if images and failed_by == {"http_500"}:  # SGLang's answer to an image that it cannot decode
                    raise EngineRefused(
                        f"the engine fails on this prompt's images with HTTP 500, each of {failures} times: leave the "
                        "images out, or send whole ones"
                    )
                kind = EngineAborted if reason == "aborted" else EngineError
                raise kind(
                    f"an engine call failed {failures} times, last because of {reason!r}: look at the logs of the "
                    f"engines behind {self.url}"
                )
            pause_s = min(_BACKOFF_S[0] * 2 ** min(failures + waits, 6), _BACKOFF_S[1])
            pause_s *= random.uniform(0.5, 1.0)
            if spent_s + pause_s > self.call_timeout_s:
                raise DeadlineError(
                    f"no reply from {self.url} within {self.call_timeout_s:.0f} s; last failure: {reason!r}, "
                    f"{call.done} tokens sampled so far: see whether engines are alive, or raise engines.call_timeout_s"
                )
            await asyncio.sleep(pause_s)
            spent_s += pause_s

    async def _lives(self, call: Call, routing_key: str) -> bool:
        """Whether the engine that failed on a prompt with images still samples: a dying one fails on every prompt."""
        one = replace(call.sampling, max_tokens=1, json_schema=None)
        try:
            await self.gate.enter(self.gate_timeout_s)
            try:
                await self._post(Call(call.prompt[:1], one).body(), routing_key, min(self.attempt_timeout_s, _LIVES_S))
            finally:
                self.gate.leave()
        except EngineRefused:
            return True  # it answers
        except Retry:
            return False
        return True

    def _check(self, ids: Ids, sampling: Sampling) -> None:
        if ids.ndim != 1 or not len(ids):
            raise EngineError(f"a prompt must be a non-empty row of token ids, got shape {ids.shape}")
        # One pass for both bounds: read without its sign, a negative id is beyond every vocabulary.
        if int(ids.view(np.uint32).max()) >= (self.vocab_size or 2**31):
            raise EngineError(
                f"a prompt holds token ids {ids.min()}..{ids.max()}, expected 0..{(self.vocab_size or 0) - 1}: "
                "the tokenizer and the model do not belong together"
            )
        if sampling.max_tokens < 1:
            raise EngineError(f"max_tokens must be at least 1, got {sampling.max_tokens}")

    async def _post(
        self, body: bytes, routing_key: str, timeout_s: float, stream: StreamedReply | None = None
    ) -> Mapping[str, Any]:
        if self._session is None:
            raise EngineError("the engine client is closed: use it inside `async with`")
        headers = {"Content-Type": "application/json", ROUTING_KEY_HEADER: routing_key}
        try:
            with self._deadlines.within(timeout_s):
                async with self._session.post(
                    self._generate_url, data=body, headers=headers, timeout=_NO_TIMEOUT
                ) as response:
                    status = response.status
                    if stream is not None and response.content_type == EVENTS:
                        async for piece in response.content.iter_any():
                            stream.feed(piece)
                        return stream.whole()
                    content = await response.read()
        except TimeoutError:
            raise Retry("attempt_timeout") from None
        except (aiohttp.ClientError, ConnectionError):
            raise Retry("connection") from None
        if status in _UNAVAILABLE:
            raise Retry("unavailable")
        if status in {400, 413, 422}:
            said = content[:500].decode(errors="replace")
            raise EngineRefused(f"the engine refused a request with HTTP {status}: {said}")
        if status != 200:
            raise Retry(f"http_{status}")
        try:
            reply = orjson.loads(content)
        except ValueError:
            raise Retry("not_json") from None
        if not isinstance(reply, dict):
            raise Retry("not_json")
        return reply
