"""One reply of the fake engine while it is being generated."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agar.errors import ConfigError
from agar.rollout.engines.hashlm import HashLM, choose
from agar.types import Floats


class FakeReply:
    """The tokens so far, and what is needed to sample the next one.

    Args:
        prompt: token ids.
        params: SGLang's `sampling_params`.
        script: the tokens to "sample" instead of drawing them; None draws.
        stream: names the random stream; equal streams draw equal tokens from equal distributions.

    Raises:
        ConfigError: a parameter has a value that the fake engine does not understand.
    """

    def __init__(
        self, *, prompt: Sequence[int], params: Mapping[str, Any], script: Sequence[int] | None, stream: bytes
    ) -> None:
        self.prompt = list(prompt)
        self.temperature = float(params.get("temperature", 1.0))
        self.top_p, self.top_k = float(params.get("top_p", 1.0)), int(params.get("top_k", -1))
        self.min_p = float(params.get("min_p", 0.0))
        self.limit = int(params.get("max_new_tokens", 128))
        self.stop_ids = frozenset(int(i) for i in params.get("stop_token_ids") or ())
        if self.temperature < 0 or self.limit < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"sampling_params are out of range: {dict(params)!r}")
        self.script = script
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.aborted = asyncio.Event()
        self.grown = asyncio.Event()  # set with each token; a stream clears it
        self.started = time.perf_counter()
        state = hashlib.blake2b(stream, digest_size=16).digest()
        self._random = np.random.Generator(np.random.PCG64(int.from_bytes(state, "little")))

    @property
    def finish(self) -> dict[str, Any] | None:
        """SGLang's `finish_reason`, None while tokens are still to come."""
        if self.aborted.is_set():
            return {"type": "abort", "message": "Aborted"}
        if self.tokens and self.tokens[-1] in self.stop_ids:
            return {"type": "stop", "matched": self.tokens[-1]}
        if len(self.tokens) >= self.limit:
            return {"type": "length", "length": self.limit}
        if self.script is not None and len(self.tokens) >= len(self.script):
            return {"type": "stop", "matched": self.tokens[-1] if self.tokens else None}
        return None

    def step(self, model: HashLM, version: int) -> None:
        """Sample one more token under the weights of the moment."""
        logprobs = model.logprobs(self.prompt + self.tokens, temperature=self.temperature)
        if self.script is not None:
            token = int(self.script[len(self.tokens)])
        elif self.temperature == 0:
            token = int(logprobs.argmax())
        else:
            token = choose(self._kept(logprobs), float(self._random.random()))
        self.tokens.append(token)
        self.logprobs.append(float(logprobs[token]))
        self.versions.append(version)
        self.grown.set()

    def _kept(self, logprobs: Floats) -> Floats:
        """The distribution to draw from: top-k, top-p and min-p applied; the log-probs in the reply stay whole."""
        if self.top_k < 1 and self.top_p >= 1 and self.min_p <= 0:
            return logprobs
        order = np.argsort(-logprobs, kind="stable")
        probs = np.exp(logprobs[order])
        keep = (np.cumsum(probs) - probs < self.top_p) & (probs >= self.min_p * probs[0])
        if self.top_k >= 1:
            keep &= np.arange(len(order)) < self.top_k
        kept = np.full_like(logprobs, -np.inf)
        kept[order[keep]] = logprobs[order[keep]] - np.log(probs[keep].sum())
        return kept

    def body(
        self,
        *,
        version: int,
        text: str,
        input_logprobs: Sequence[tuple[float | None, int, None]] | None,
        start: int = 0,
    ) -> dict[str, Any]:
        """The reply as `/generate` of SGLang 0.5.23 gives it, as far as agar reads it; its tokens from `start` on."""
        spans: list[dict[str, Any]] = []
        for i, stamp in enumerate(self.versions):
            if not spans or spans[-1]["version"] != str(stamp):
                spans.append({"version": str(stamp), "start": i, "end": i})
            spans[-1]["end"] = i + 1
        meta: dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "finish_reason": self.finish,
            "prompt_tokens": len(self.prompt),
            "completion_tokens": len(self.tokens),
            "cached_tokens": 0,
            "weight_version": spans[-1]["version"] if spans else str(version),
            "weight_versions": spans or [{"version": str(version), "start": 0, "end": 0}],
            "output_token_logprobs": [
                [logprob, token, None]
                for logprob, token in zip(self.logprobs[start:], self.tokens[start:], strict=True)
            ],
            "output_token_logprobs_length": len(self.tokens),
            "e2e_latency": time.perf_counter() - self.started,
        }
        if input_logprobs is not None:
            meta["input_token_logprobs"] = [list(row) for row in input_logprobs]
        return {"text": text, "output_ids": self.tokens[start:], "meta_info": meta}
