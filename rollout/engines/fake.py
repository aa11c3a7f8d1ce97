"""FakeEngine: SGLang's HTTP surface over HashLM, in this process or as `python -m agar.rollout.engines.fake`.

It answers the endpoints that agar uses, in the shapes of SGLang 0.5.23, so the gateway, the client, the router, the
pool and weight delivery run against it unchanged. Replies can be scripted, slowed down, and made to fail.
"""

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from agar.errors import ConfigError
from agar.rollout.engines.fake_reply import FakeReply
from agar.rollout.engines.faults import Fault, Faults
from agar.rollout.engines.hashlm import HashLM, vocab_size, weights_digest

logger = logging.getLogger(__name__)

_FAULT = web.RequestKey("fault", Fault)

Script = Callable[[Sequence[int], Mapping[str, Any]], Sequence[int] | None]
"""Given a prompt and SGLang's `sampling_params`, the tokens to answer with; None lets HashLM draw them."""


class FakeEngine:
    """A fake SGLang server; an async context manager that listens on `url` while it is open.

    Args:
        model_dir: where its first weights come from; None uses `weights`.
        weights: names the first weights where there is no directory.
        version: the weight version that replies carry at first.
        vocab_size: token ids lie below it.
        script: scripted replies; their log-probs are still HashLM's.
        decode: gives `text` of a reply; without it text is empty.
        first_token_s: wait before the first token of a reply.
        token_s: wait before every token.
        incremental: whether the events of a stream hold new tokens only, as SGLang's do with
            `--incremental-streaming-output`, or all so far.
        seed: of the engine's own sampling. A request's `sampling_seed` overrides it; without one, the i-th request
            with a given prompt draws the i-th stream, whatever the order of other requests.
        host: address to listen on.
        port: 0 takes a free one.

    Attributes:
        faults: what is still to go wrong, see `Fault`.
        requests: requests served, by path.
    """

    def __init__(
        self,
        *,
        model_dir: Path | None = None,
        weights: str = "initial",
        version: int = 0,
        vocab_size: int = 512,
        script: Script | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
        first_token_s: float = 0.0,
        token_s: float = 0.0,
        incremental: bool = True,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.model = HashLM(weights=weights_digest(model_dir) if model_dir else weights, vocab_size=vocab_size)
        self.model_path = str(model_dir or "")
        self.version, self.script, self.decode = version, script, decode
        self.first_token_s, self.token_s, self.seed = first_token_s, token_s, seed
        self.incremental = incremental
        self.host, self.port = host, port
        self.faults = Faults()
        self.requests: Counter[str] = Counter()
        self._prompts: Counter[bytes] = Counter()
        self._inflight: set[FakeReply] = set()
        self._going = asyncio.Event()
        self._going.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._updating = False
        self._runner: web.AppRunner | None = None

    # ------------------------------------------------------------------------------------------------ life

    @property
    def url(self) -> str:
        """Base URL, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    @property
    def running(self) -> int:
        """Replies being generated now."""
        return len(self._inflight)

    def fail(self, kind: str, *, path: str = "/generate", after_tokens: int = 0, count: int = 1) -> None:
        """Make the next `count` requests to `path` fail; see `Fault` for the kinds."""
        self.faults.add(Fault(kind=kind, path=path, after_tokens=after_tokens, count=count))  # type: ignore[arg-type]

    async def start(self) -> None:
        """Listen; after `die`, again on the same port."""
        app = web.Application(client_max_size=1 << 30, middlewares=[self._middleware])
        app.add_routes(self._routes())
        # Cancelling handlers of vanished clients frees "hung" requests, as SGLang aborts them.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def die(self) -> None:
        """Stop at once: close the port and cut every connection, as a killed server would."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for connection in list(runner.server.connections) if runner.server else []:
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.die()

    def _routes(self) -> list[web.RouteDef]:
        def both(path: str, handler: Callable[[web.Request], Any]) -> list[web.RouteDef]:
            return [web.get(path, handler), web.post(path, handler)]

        routes = [web.get(path, self._ok) for path in ("/health", "/health_generate", "/ready")]
        routes += [web.get(path, self._info) for path in ("/model_info", "/get_model_info")]
        routes += [web.get(path, self._info) for path in ("/server_info", "/get_server_info")]
        routes += [*both("/flush_cache", self._ok), *both("/weights_checker", self._checksum)]
        routes += [web.get("/v1/models", self._models), web.get("/get_weight_version", self._info)]
        posts = {
            "/generate": self._generate,
            "/pause_generation": self._pause,
            "/continue_generation": self._continue,
            "/abort_request": self._abort,
            "/update_weights_from_disk": self._from_disk,
            "/update_weights_from_tensor": self._from_tensor,
            "/update_weight_version": self._restamp,
            "/begin_weight_update": self._begin,
            "/end_weight_update": self._end,
        }
        return routes + [web.post(path, handler) for path, handler in posts.items()]

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests[request.path] += 1
        fault = self.faults.take(request.path)
        if fault is not None and (fault.kind == "stale" or fault.after_tokens):
            request[_FAULT] = fault  # strikes later, inside the handler
        elif fault is not None:
            return await self._strike(fault, request)
        response: web.StreamResponse = await handler(request)
        return response

    async def _strike(self, fault: Fault, request: web.Request) -> web.StreamResponse:
        logger.info("fake engine %s: fault %s on %s", self.url, fault.kind, request.path)
        if fault.kind == "error":
            return _json({"error": {"message": "scripted fault"}}, status=500)
        if fault.kind == "hang":
            await asyncio.Event().wait()  # ends when the client leaves or the server dies
        if fault.kind == "die":
            self._dying = asyncio.create_task(self.die())
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    # ------------------------------------------------------------------------------------------ generation

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, params = body.get("input_ids"), body.get("sampling_params") or {}
        if not isinstance(prompt, list) or not all(isinstance(i, int) for i in prompt):
            return _json({"error": {"message": "input_ids must be a list of token ids"}}, status=400)
        if any(not 0 <= i < self.model.vocab_size for i in prompt):
            return _json({"error": {"message": f"input_ids must lie in [0, {self.model.vocab_size})"}}, status=400)
        await self._going.wait()
        try:
            replies = [self._reply(prompt, params, i) for i in range(int(params.get("n", 1)))]
        except (ConfigError, TypeError, ValueError) as error:
            return _json({"error": {"message": str(error)}}, status=400)
        fault: Fault | None = request.get(_FAULT)
        if body.get("stream"):
            return await self._stream(request, replies[0], fault)
        async with asyncio.TaskGroup() as group:
            for reply in replies:
                group.create_task(self._run(reply, fault))
        if fault is not None and not any(reply.aborted.is_set() for reply in replies):
            return await self._strike(fault, request)
        start = int(body.get("logprob_start_len", -1))
        rows = self._input_logprobs(prompt, start) if body.get("return_logprob") and start >= 0 else None
        bodies = [
            reply.body(
                version=self.version,
                text=self.decode(reply.tokens) if self.decode else "",
                input_logprobs=rows,
            )
            for reply in replies
        ]
        return _json(bodies[0] if len(bodies) == 1 else bodies)

    async def _stream(self, request: web.Request, reply: FakeReply, fault: Fault | None) -> web.StreamResponse:
        """One event for each token, or for several where the client is slow; a stream is of one reply."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        run = asyncio.get_running_loop().create_task(self._run(reply, fault))
        run.add_done_callback(lambda _: reply.grown.set())
        sent, ended = 0, False
        try:
            while not ended:
                await reply.grown.wait()
                reply.grown.clear()
                ended = reply.finish is not None
                if fault is not None and run.done() and not ended:
                    if fault.kind != "error":
                        return await self._strike(fault, request)
                    await response.write(b'data: {"error":{"message":"scripted fault","code":500}}\n\n')
                    break
                start, sent = (sent if self.incremental else 0), len(reply.tokens)
                text = self.decode(reply.tokens[start:]) if self.decode else ""
                step = reply.body(version=self.version, text=text, input_logprobs=None, start=start)
                await response.write(b"data: %b\n\n" % json.dumps(step).encode())
            await response.write(b"data: [DONE]\n\n")
        finally:
            run.cancel()
            await asyncio.wait({run})
        return response

    def _reply(self, prompt: list[int], params: Mapping[str, Any], index: int) -> FakeReply:
        key = hashlib.blake2b(repr(prompt).encode(), digest_size=16).digest()
        seed = params.get("sampling_seed")
        ordinal = index if seed is not None else self._prompts[key]
        self._prompts[key] += 1
        stream = key + f"|{self.seed if seed is None else seed}|{ordinal}".encode()
        script = self.script(prompt, params) if self.script else None
        return FakeReply(prompt=prompt, params=params, script=script, stream=stream)

    async def _run(self, reply: FakeReply, fault: Fault | None) -> None:
        self._inflight.add(reply)
        self._idle.clear()
        try:
            await self._wait(reply, self.first_token_s)
            while reply.finish is None:
                await self._wait(reply, self.token_s)
                if fault is not None and len(reply.tokens) >= fault.after_tokens:
                    return
                if reply.finish is None and not self._going.is_set():  # held by a pause in mode retract or in_place
                    await self._going.wait()
                if reply.finish is None:
                    reply.step(self.model, self.version)
                if len(reply.tokens) % 64 == 63:
                    await asyncio.sleep(0)
        finally:
            self._inflight.discard(reply)
            if not self._inflight:
                self._idle.set()

    async def _wait(self, reply: FakeReply, seconds: float) -> None:
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await reply.aborted.wait()
            except TimeoutError:
                pass

    def _input_logprobs(self, prompt: list[int], start: int) -> list[tuple[float | None, int, None]]:
        values = [None, *self.model.sequence_logprobs(prompt).tolist()]
        return [(values[i], prompt[i], None) for i in range(start, len(prompt))]

    # --------------------------------------------------------------------------------------------- control

    async def _pause(self, request: web.Request) -> web.StreamResponse:
        mode = (await _body(request)).get("mode", "abort")
        if mode not in {"abort", "retract", "in_place"}:
            return _json({"error": {"message": f"unknown pause mode {mode!r}"}}, status=400)
        self._going.clear()
        if mode == "abort":
            self._abort_all()
            await self._idle.wait()
        return _json({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, _: web.Request) -> web.StreamResponse:
        self._going.set()
        return _json({"message": "Generation continued successfully.", "status": "ok"})

    async def _abort(self, request: web.Request) -> web.StreamResponse:
        if (await _body(request)).get("abort_all"):
            self._abort_all()
        return web.Response()

    def _abort_all(self) -> None:
        for reply in self._inflight:
            reply.aborted.set()

    async def _from_disk(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        try:
            weights = await asyncio.to_thread(weights_digest, Path(str(body.get("model_path"))))
        except OSError as error:
            return _json({"success": False, "message": str(error), "num_paused_requests": 0}, status=400)
        if self._going.is_set():  # an engine that was not paused waits for its running requests
            await self._idle.wait()
        self._load(request, weights, body)
        self.model_path = str(body["model_path"])
        return _json({"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0})

    async def _from_tensor(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not self._updating:
            return _json({"success": False, "message": "no open weight update: begin_weight_update first"}, status=400)
        weights = hashlib.sha256("".join(body.get("serialized_named_tensors", [])).encode()).hexdigest()
        self._load(request, weights, body)
        return _json({"success": True, "message": "Success."})

    def _load(self, request: web.Request, weights: str, body: Mapping[str, Any]) -> None:
        if _FAULT not in request:
            self.model = HashLM(weights=weights, vocab_size=self.model.vocab_size)
        if body.get("weight_version") is not None:
            self.version = int(body["weight_version"])

    async def _restamp(self, request: web.Request) -> web.StreamResponse:
        self.version = int((await request.json())["new_version"])
        return _json({"success": True, "message": "Weight version updated.", "new_version": str(self.version)})

    async def _begin(self, _: web.Request) -> web.StreamResponse:
        self._updating = True
        return _json({"success": True, "message": "Success."})

    async def _end(self, _: web.Request) -> web.StreamResponse:
        self._updating = False
        return _json({"success": True, "message": "Success."})

    async def _checksum(self, _: web.Request) -> web.StreamResponse:
        rank = hashlib.sha256(self.model.weights.encode()).hexdigest()
        ranks = [{"checksums": {"weights": rank[:16]}, "per_gpu_checksum": rank, "parallelism_info": []}]
        engine = hashlib.sha256(rank.encode()).hexdigest()
        return _json({"success": True, "message": "Success.", "ranks": ranks, "per_engine_checksum": engine})

    async def _info(self, _: web.Request) -> web.StreamResponse:
        served = self.model_path or "fake"
        info = {"model_path": served, "served_model_name": served, "tokenizer_path": served, "is_generation": True}
        sizes = {"tp_size": 1, "dp_size": 1, "pp_size": 1, "vocab_size": self.model.vocab_size, "model_type": "fake"}
        return _json({**info, **sizes, "weight_version": str(self.version), "disaggregation_mode": "null"})

    async def _models(self, _: web.Request) -> web.StreamResponse:
        return _json({"object": "list", "data": [{"id": self.model_path or "fake", "object": "model"}]})

    async def _ok(self, _: web.Request) -> web.StreamResponse:
        return web.Response()


async def _body(request: web.Request) -> dict[str, Any]:
    return dict(await request.json()) if request.can_read_body else {}


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), status=status, content_type="application/json")


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until killed; takes SGLang's names for the arguments that it shares."""
    import argparse

    parser = argparse.ArgumentParser(description="A fake SGLang server")
    parser.add_argument("--model-path", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--weight-version", type=int, default=0)
    parser.add_argument("--vocab-size", type=int, help="default: the model's config.json, or else 512")
    parser.add_argument("--token-s", type=float, default=0.0)
    args = parser.parse_args(argv)

    async def serve() -> None:
        engine = FakeEngine(
            model_dir=args.model_path,
            version=args.weight_version,
            vocab_size=args.vocab_size or vocab_size(args.model_path) or 512,
            token_s=args.token_s,
            host=args.host,
            port=args.port,
        )
        async with engine:
            logger.info("fake engine listens on %s", engine.url)
            await asyncio.Event().wait()

    logging.basicConfig(level=logging.INFO)
    asyncio.run(serve())


if __name__ == "__main__":
    main()
