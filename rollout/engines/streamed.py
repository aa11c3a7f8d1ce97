"""A reply of `/generate` that comes as server-sent events, put together to what it is without `stream`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from agar.errors import EngineRefused
from agar.rollout.engines.call import served_by

EVENTS = "text/event-stream"
"""The content type of a stream."""
Tell = Callable[[Sequence[int]], None]
"""Takes the ids that were sampled since the last time."""


class Retry(Exception):
    """An attempt that came to nothing, or not to its end; another may."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StreamedReply:
    """One stream: its events are steps of one reply, each with all tokens so far or with the new ones only.

    SGLang sends the new ones only where it was started with `--incremental-streaming-output`, as the pool does: else
    the bytes sent grow with the square of the reply.

    Args:
        version: tokens of another weight version are not taken; None takes any.
        tell: called with the ids of each step.

    Attributes:
        reply: the reply up to now in the shape of a whole one, cut where it is not yet complete.
    """

    def __init__(self, version: int | None, tell: Tell) -> None:
        self._version, self._tell = version, tell
        self._rest = b""
        self._rows: list[Any] = []
        self._text = ""
        self.reply: Mapping[str, Any] = {}

    def feed(self, data: bytes) -> None:
        """Take bytes of the stream.

        Raises:
            Retry: a step cannot be read, or was sampled by another weight version.
            EngineRefused: the engine cannot serve the request.
        """
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            said = event.strip().removeprefix(b"data:").strip()
            if said and said != b"[DONE]":
                self._step(said)

    def whole(self) -> Mapping[str, Any]:
        """The reply, where the engine has ended it.

        Raises:
            Retry: the stream ended before.
        """
        if not (self.reply.get("meta_info") or {}).get("finish_reason"):
            raise Retry("cut_short")
        return self.reply

    def _step(self, said: bytes) -> None:
        try:
            step = orjson.loads(said)
            error = step.get("error")
            meta = step.get("meta_info") or {}
            finish = meta.get("finish_reason") or {}
            rows = meta.get("output_token_logprobs") or []
            total = int(meta.get("completion_tokens", 0))
            code = int((error.get("code") if error else finish.get("status_code")) or 0)
        except (AttributeError, TypeError, ValueError):
            raise Retry("not_json") from None
        if code == 400:
            told = error["message"] if error else finish.get("message")
            raise EngineRefused(f"the engine refused a request: {str(told)[:500]}")
        if error or code:
            raise Retry(f"http_{code or 500}")
        if self._version is not None and not served_by(step, self._version):
            raise Retry("stale_version")
        if total == len(self._rows) + len(rows):
            new, text = rows, self._text + (step.get("text") or "")
        elif total == len(rows):
            new, text = rows[len(self._rows) :], step.get("text") or ""
        else:
            raise Retry("lost_tokens")
        self._rows += new
        self._text = text
        self.reply = {**step, "text": text, "meta_info": {**meta, "output_token_logprobs": self._rows}}
        if new:
            self._tell([row[1] for row in new])
