"""EngineControl: one engine's administrative endpoints, as SGLang 0.5.23 serves them."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import numpy as np

from agar.errors import EngineError, PublishError
from agar.types import Floats, Ids, WeightUpdate


class EngineControl:
    """Talks to one engine past the router.

    Args:
        url: base URL of the engine.
        session: open HTTP session.
        timeout_s: deadline of every request that does not take its own.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession, *, timeout_s: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self._session, self._timeout_s = session, timeout_s

    async def alive(self, *, timeout_s: float = 5.0) -> bool:
        """True where the server answers and has loaded its model."""
        return await self._answers("/health", timeout_s)

    async def healthy(self, *, timeout_s: float = 30.0) -> bool:
        """True where the engine generates a token, or is busy generating others."""
        return await self._answers("/health_generate", timeout_s)

    async def _answers(self, path: str, timeout_s: float) -> bool:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(self.url + path, timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def info(self) -> Mapping[str, Any]:
        """What the server says about its model and its weight version.

        Raises:
            EngineError: no answer.
        """
        return await self._call("GET", "/model_info")

    async def stamp(self, version: int) -> None:
        """Set the weight version without touching the weights.

        Raises:
            EngineError: the engine refuses.
        """
        await self._call("POST", "/update_weight_version", {"new_version": str(version), "abort_all_requests": False})

    async def abort_all(self, *, timeout_s: float | None = None) -> None:
        """End every running request with the tokens it has.

        Raises:
            EngineError: no answer.
        """
        await self._call("POST", "/abort_request", {"abort_all": True}, timeout_s=timeout_s)

    async def pause(self) -> None:
        """End what runs and hold what comes, until `resume`.

        Raises:
            EngineError: no answer.
        """
        # SGLang re-checks for running requests only once a second; aborting first makes the pause immediate.
        await self.abort_all()
        await self._call("POST", "/pause_generation", {"mode": "abort"})

    async def resume(self, *, timeout_s: float | None = None) -> None:
        """Let requests run again.

        Raises:
            EngineError: no answer.
        """
        await self._call("POST", "/continue_generation", {}, timeout_s=timeout_s)

    async def load(self, update: WeightUpdate, *, timeout_s: float) -> None:
        """Take the weights of `update`, stamped with its version; the prefix cache is flushed.

        Raises:
            EngineError: the engine refuses, or does not answer in time.
            PublishError: the update lacks what its transport needs.
        """
        stamp = {"weight_version": str(update.version), "flush_cache": True}
        if update.transport == "disk":
            body = {"model_path": str(_needed(update, "directory")), **stamp}
            await self._call("POST", "/update_weights_from_disk", body, timeout_s=timeout_s)
            return
        tensors = _needed(update, "tensors")
        body = {"serialized_named_tensors": list(tensors), **stamp}
        if "load_format" in update.payload:
            body["load_format"] = update.payload["load_format"]
        # 0.5.23 refuses tensors outside of a begin/end pair.
        await self._call("POST", "/begin_weight_update", {}, timeout_s=timeout_s)
        try:
            await self._call("POST", "/update_weights_from_tensor", body, timeout_s=timeout_s)
        finally:
            await self._call("POST", "/end_weight_update", {}, timeout_s=timeout_s)

    async def checksum(self, *, timeout_s: float | None = None) -> str:
        """The engine's own checksum over all its weights.

        Raises:
            EngineError: the engine cannot say.
        """
        reply = await self._call("POST", "/weights_checker", {"action": "checksum"}, timeout_s=timeout_s)
        checksum = reply.get("per_engine_checksum")
        if not isinstance(checksum, str):
            raise EngineError(f"{self.url}/weights_checker gave no per_engine_checksum: {str(reply)[:300]}")
        return checksum

    async def probe(self, ids: Ids, *, timeout_s: float | None = None) -> tuple[Floats, int]:
        """The engine's log-probs of a given sequence, by prefill, and the version it stamps them with.

        Args:
            ids: int32 [T], T >= 2.
            timeout_s: deadline.

        Returns:
            float32 [T - 1], entry i is log p(ids[i + 1] | ids[: i + 1]); and the weight version.

        Raises:
            EngineError: the engine cannot say.
        """
        body = {
            "input_ids": [int(i) for i in ids],
            "sampling_params": {"temperature": 1.0, "max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }
        reply = await self._call("POST", "/generate", body, timeout_s=timeout_s)
        try:
            rows = reply["meta_info"]["input_token_logprobs"]
            values = np.array([row[0] for row in rows[1:]], dtype=np.float32)
            version = int(reply["meta_info"]["weight_version"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise EngineError(f"{self.url} did not score a probe ({error!r}): {str(reply)[:300]}") from error
        if len(values) != len(ids) - 1:
            raise EngineError(f"{self.url} scored {len(values)} tokens of a probe, expected {len(ids) - 1}")
        return values, version

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Mapping[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        try:
            async with self._session.request(method, self.url + path, json=body, timeout=timeout) as response:
                text = await response.text()
                reply: Any = await response.json() if response.content_type == "application/json" and text else {}
        except TimeoutError:
            raise EngineError(f"{self.url}{path} did not answer within {timeout.total:.0f} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise EngineError(f"{self.url}{path} failed: {error!r}") from error
        if response.status != 200 or not isinstance(reply, dict) or reply.get("success") is False:
            raise EngineError(f"{self.url}{path} answered HTTP {response.status}: {text[:500]}")
        return reply


def _needed(update: WeightUpdate, key: str) -> Any:
    if key not in update.payload:
        raise PublishError(
            f'a weight update by {update.transport} needs payload["{key}"], got {sorted(update.payload)}: '
            "let the trainer's publisher fill it in"
        )
    return update.payload[key]
