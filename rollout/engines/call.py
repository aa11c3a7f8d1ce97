"""One call of an engine: its request, and the pieces of its reply."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from agar.types import Finish, Ids, Sampled, Sampling


class Call:
    """The prompt, and the pieces of the reply that came so far.

    Args:
        prompt: int32 [n].
        sampling: sampler and limits of the whole reply.
        images: the images of the prompt.

    Attributes:
        pieces: what was sampled, in order.
    """

    def __init__(self, prompt: Ids, sampling: Sampling, images: Sequence[str] = ()) -> None:
        self.prompt, self.sampling, self.images = prompt, sampling, images
        self.pieces: list[Sampled] = []

    @property
    def done(self) -> int:
        """Tokens sampled so far."""
        return sum(len(piece) for piece in self.pieces)

    def body(self, *, stream: bool = False) -> bytes:
        """The request for the rest of the reply, as events if `stream`."""
        s = self.sampling
        params: dict[str, Any] = {
            "temperature": s.temperature,
            "top_p": s.top_p,
            "top_k": s.top_k,
            "min_p": s.min_p,
            "max_new_tokens": s.max_tokens - self.done if self.pieces else s.max_tokens,
            "stop_token_ids": list(s.stop_token_ids),
            # Text never ends a reply and special tokens stay: only ids matter here.
            "skip_special_tokens": False,
            "no_stop_trim": True,
        }
        if s.seed is not None:
            params["sampling_seed"] = s.seed
        if s.stop:
            params["stop"] = list(s.stop)
        if s.json_schema is not None:
            params["json_schema"] = s.json_schema
        ids = np.concatenate([self.prompt, *(p.token_ids for p in self.pieces)]) if self.pieces else self.prompt
        body: dict[str, Any] = {"input_ids": ids, "sampling_params": params, "return_logprob": True, "stream": stream}
        if self.images:
            body["image_data"] = list(self.images)
        return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)

    def take(self, reply: Mapping[str, Any], version: int | None) -> str:
        """Keep a reply's tokens; gives why the call must go on, or "" where it is complete."""
        if version is not None and not served_by(reply, version):
            return "stale_version"
        pieces = _pieces(reply)
        if pieces and pieces[-1].finish is Finish.ABORT and self._stopped(reply):
            pieces[-1] = _ended(pieces[-1], Finish.STOP)
        self.pieces += [piece for piece in pieces if len(piece) or piece.finish is not Finish.ABORT]
        if (pieces[-1].finish if pieces else Finish.ABORT) is not Finish.ABORT:
            return ""
        if self.sampling.json_schema is not None:
            self.pieces.clear()  # a schema's automaton begins anew with each request: the reply must, too
        return "" if self.done >= self.sampling.max_tokens else "aborted"

    def sampled(self) -> Sampled:
        """The whole reply."""
        sampled = self.pieces[0] if len(self.pieces) == 1 else Sampled.join(self.pieces)
        if sampled.finish is not Finish.ABORT:
            return sampled
        return _ended(sampled, Finish.LENGTH)  # cut on exactly its last token: by its own limit it is complete

    def _stopped(self, reply: Mapping[str, Any]) -> bool:
        """Whether a reply that was cut is complete: SGLang samples once more after an abort and checks no stop."""
        rows = (reply.get("meta_info") or {}).get("output_token_logprobs") or []
        if not rows:
            return False
        return rows[-1][1] in self.sampling.stop_token_ids or any(
            stop in (reply.get("text") or "") for stop in self.sampling.stop
        )


def served_by(reply: Mapping[str, Any], version: int) -> bool:
    """Whether every weight version that a reply names is this one; an engine that nobody stamped names a word."""
    meta, told = reply.get("meta_info") or {}, str(version)
    spans = meta.get("weight_versions") or ()
    return str(meta.get("weight_version")) == told and all(str(span.get("version")) == told for span in spans)


def _ended(piece: Sampled, finish: Finish) -> Sampled:
    return Sampled.restore(
        token_ids=piece.token_ids,
        logprobs=piece.logprobs,
        policy_versions=piece.policy_versions,
        finish=finish,
        side=piece.side,
    )


def _pieces(reply: Mapping[str, Any]) -> list[Sampled]:
    """A reply as pieces of one version each; none where it was given up before its first token."""
    meta = reply.get("meta_info") or {}
    finish = meta.get("finish_reason") or {"type": "abort"}
    rows = meta.get("output_token_logprobs") or []
    if finish.get("type") == "abort" and not rows:
        return []
    spans = meta.get("weight_versions") or []
    if len(spans) < 2:
        return [Sampled.from_generate(reply)]
    cut = {**meta, "finish_reason": {"type": "abort"}}
    pieces = []
    for i, span in enumerate(spans):
        part = {**(meta if i == len(spans) - 1 else cut), "output_token_logprobs": rows[span["start"] : span["end"]]}
        pieces.append(Sampled.from_generate({"meta_info": part}, policy_version=int(span["version"])))
    return pieces
