"""What the gateway costs: latency added to a model call, and calls per second when it is saturated.

    python benchmarks/gateway.py [--seconds 4] [--rounds 5] [--out runs/bench_gateway.json]

Four processes: this one makes the load, one stands in for an engine (canned `/generate` replies after a set time), one
runs the gateway with the real `RouterClient`, one a bare pass-through proxy on the same HTTP stack (uvicorn and
Starlette in, aiohttp out, set as the gateway's own client is: no cookies, the URL parsed once). Measurements alternate
between the two sides in short rounds, so that other load on the machine falls on both. Sessions are opened a few at a
time and sealed when their last turn is over, as episodes do.

1. Open loop: 50 calls a second over 32 sessions, engine latency 200 ms; against the same calls straight to the engine.
2. Saturated: 64 callers, engine latency 0; against the proxy. Where there are cores enough, the server has one to
   itself. Gateway and proxy are one thread each, so what a core can serve is 1 / (CPU time per call): `ratio` is the
   ratio of those, and it is the claim. The ratio of calls per second by the clock is the same number only while both
   servers are busy all the time, which a machine with other work does not allow: a server that waits for its core
   looks as cheap as one that needs none. It is written beside it with each server's, the load's and the engine's busy
   share.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from agar.cli.garbage import collecting_rarely
from agar.ledger.families import family_for
from agar.ledger.toy import hash_logprobs, write_toy_model
from agar.types import Message, Sampling, ToolCall, ToolSpec

TURNS = 6
SESSIONS = 32
CALLERS = 64
BLOCK = 64
RATE_PER_S = 50.0
LATENCY_S = 0.2
TIMEOUT_S = 30.0
TOOL = ToolSpec(
    name="sh",
    description="Run a shell command in the sandbox.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
ARGUMENTS = {"command": "cat 47"}
RESULT = "box 83 " * 8


# ---------------------------------------------------------------------------------------------------- messages


def canned_reply(model: Path) -> dict[str, Any]:
    """The engine's reply: a tool call of about twenty tokens."""
    family = family_for(model)
    call = ToolCall(id="", name="sh", arguments=ARGUMENTS)
    ids, mask = family.transcript([Message(role="assistant", tool_calls=(call,))])
    reply = ids[mask]
    rows = [[float(p), int(t), None] for p, t in zip(hash_logprobs(ids[:4], reply), reply, strict=True)]
    meta = {
        "id": "0",
        "finish_reason": {"type": "stop", "matched": int(reply[-1])},
        "prompt_tokens": 1,
        "completion_tokens": len(reply),
        "weight_version": "0",
        "output_token_logprobs": rows,
    }
    return {"text": "", "output_ids": reply.tolist(), "meta_info": meta}


def conversation() -> list[dict[str, Any]]:
    """The messages of an episode whose every reply is the canned one; turn k sends the first 2 + 2k of them."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Answer with the amount of gold."},
        {"role": "user", "content": "Start at 47."},
    ]
    spelt = json.dumps(ARGUMENTS, separators=(",", ":"))
    for turn in range(TURNS - 1):
        id = f"call_{turn}_0"
        call = {"id": id, "type": "function", "function": {"name": "sh", "arguments": spelt}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": id, "content": RESULT})
    return messages


def chat_bodies() -> list[bytes]:
    """The request body of every turn."""
    tool = {
        "type": "function",
        "function": {"name": TOOL.name, "description": TOOL.description, "parameters": dict(TOOL.parameters)},
    }
    messages = conversation()
    return [
        json.dumps({"model": "main", "messages": messages[: 2 + 2 * turn], "tools": [tool]}).encode()
        for turn in range(TURNS)
    ]


def generate_bodies(model: Path) -> list[bytes]:
    """What the gateway posts to the engine for every turn."""
    family = family_for(model)
    sampling = {"temperature": 1.0, "max_new_tokens": 64, "stop_token_ids": list(family.stop_ids)}
    bodies = []
    messages = [Message(role=m["role"], content=m["content"]) for m in conversation()[:2]]
    for turn in range(TURNS):
        ids = family.render(messages, [TOOL]).tolist()
        bodies.append(json.dumps({"input_ids": ids, "sampling_params": sampling, "return_logprob": True}).encode())
        messages.append(
            Message(role="assistant", tool_calls=(ToolCall(id=f"call_{turn}_0", name="sh", arguments=ARGUMENTS),))
        )
        messages.append(Message(role="tool", content=RESULT, tool_call_id=f"call_{turn}_0"))
    return bodies


# ----------------------------------------------------------------------------------------------- a lean client


class Wire(asyncio.Protocol):
    """One keep-alive connection; one request at a time. Much cheaper than what it measures."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._got = bytearray()
        self._need = -1
        self._waiter: asyncio.Future[bytes] | None = None

    @classmethod
    async def connect(cls, port: int) -> "Wire":
        _, wire = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._need < 0:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._got[:end]).lower()
            if b" 200 " not in head[:16]:
                if self._waiter is not None and not self._waiter.done():
                    self._waiter.set_exception(RuntimeError(f"{head[:80]!r} {bytes(self._got[end:])!r}"))
                return
            at = head.index(b"content-length:") + 15
            self._need = end + 4 + int(head[at : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None])
        if len(self._got) >= self._need and self._waiter is not None and not self._waiter.done():
            body = bytes(self._got[: self._need])
            del self._got[: self._need]
            self._need = -1
            self._waiter.set_result(body)

    async def post(self, request: bytes) -> bytes:
        """Send a whole request; give back head and body."""
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def request(path: str, body: bytes, key: str = "none") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


# -------------------------------------------------------------------------------------------------- the servers


class CannedEngine(asyncio.Protocol):
    """Answers any POST with the same bytes after `latency_s`."""

    def __init__(self, reply: bytes, latency_s: float) -> None:
        self._reply, self._latency_s = reply, latency_s
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._got[:end]).lower()
        at = head.index(b"content-length:") + 15
        stop = head.find(b"\r", at)
        need = end + 4 + int(head[at : stop if stop > 0 else None])
        if len(self._got) >= need:
            del self._got[:need]
            if self._latency_s:
                asyncio.get_running_loop().call_later(self._latency_s, self._transport.write, self._reply)
            else:
                self._transport.write(self._reply)


async def serve_engine(model: Path, latency_s: float) -> None:
    body = json.dumps(canned_reply(model)).encode()
    reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: CannedEngine(reply, latency_s), "127.0.0.1", 0, backlog=1024)
    async with server:
        await obey(server.sockets[0].getsockname()[1], lambda line: "")


async def serve_gateway(model: Path, engine: int) -> None:
    from agar.rollout.engines.client import RouterClient
    from agar.rollout.gateway.server import Gateway

    sessions: dict[str, Any] = {}
    async with (
        RouterClient(f"http://127.0.0.1:{engine}") as client,
        Gateway(engines={"main": client}, families={"main": family_for(model)}) as gateway,
    ):

        def seal_and_open(line: str) -> list[str]:
            for key in json.loads(line):
                sessions.pop(key).seal()
            fresh = [gateway.open(policy="main", sampling=Sampling(max_tokens=64)) for _ in range(BLOCK)]
            sessions.update({session.id: session for session in fresh})
            return [session.id for session in fresh]

        await obey(int(gateway.base_url.split(":")[2].split("/")[0]), seal_and_open)


async def serve_proxy(engine: int) -> None:
    import aiohttp
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from yarl import URL

    from agar.serving.listener import Listener

    url = URL(f"http://127.0.0.1:{engine}/generate")
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as client:

        async def forward(request: Request) -> Response:
            headers = {"content-type": request.headers["content-type"]}
            body = await request.body()
            async with client.post(url, data=body, headers=headers) as reply:
                return Response(await reply.read(), status_code=reply.status, media_type=reply.content_type)

        app = Starlette(routes=[Route("/generate", forward, methods=["POST"])])
        listener = Listener(app, name="bare", host="127.0.0.1", port=0, shutdown_timeout_s=1.0, head_timeout_s=60.0)
        await listener.start()
        await obey(listener.port, lambda line: "")
        await listener.stop()


async def obey(port: int, answer: Callable[[str], Any]) -> None:
    """Say the port, then answer each line on standard input with [answer, CPU seconds so far], until it closes."""
    print(json.dumps(port), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        value = answer(line.strip()) if line.strip() else ""
        print(json.dumps([value, time.process_time()]), flush=True)


class Process:
    """One of the servers, as a child of this process; it ends when its standard input closes."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process, self.port = process, port

    @classmethod
    async def start(cls, *arguments: str, cores: Sequence[int] = ()) -> "Process":
        """Start one, on some of the cores if not on all."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", __file__, *arguments, stdin=pipe, stdout=pipe, limit=1 << 26
        )
        assert process.stdout is not None
        if cores:
            os.sched_setaffinity(process.pid, cores)
        async with asyncio.timeout(TIMEOUT_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{arguments} did not start: see above")
        return cls(process, json.loads(line))

    async def ask(self, line: str = "") -> tuple[Any, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        async with asyncio.timeout(TIMEOUT_S):
            answer, cpu_s = json.loads(await self._process.stdout.readline())
        return answer, cpu_s

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


# ------------------------------------------------------------------------------------------------ measurements


class Episodes:
    """Requests of sessions that each play `TURNS` turns; idle sessions wait in a queue."""

    def __init__(self, gateway: Process, bodies: Sequence[bytes]) -> None:
        self._gateway, self._bodies = gateway, bodies
        self._idle: deque[tuple[str, int]] = deque()
        self._fresh: deque[str] = deque()
        self._ended: list[str] = []
        self._refill = asyncio.Lock()

    async def take(self) -> tuple[str, int]:
        if self._idle:
            return self._idle.popleft()
        async with self._refill:
            if not self._fresh:
                ended, self._ended = self._ended, []
                self._fresh.extend((await self._gateway.ask(json.dumps(ended)))[0])
            return self._fresh.popleft(), 0

    def request(self, place: tuple[str, int]) -> bytes:
        key, turn = place
        return request("/v1/chat/completions", self._bodies[turn], key)

    def give(self, place: tuple[str, int]) -> None:
        key, turn = place
        if turn + 1 < TURNS:
            self._idle.append((key, turn + 1))
        else:
            self._ended.append(key)


class Plain:
    """The same sequence of `/generate` bodies, without sessions."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._bodies, self._count = [request("/generate", body) for body in bodies], 0

    async def take(self) -> int:
        self._count += 1
        return self._count % TURNS

    def request(self, place: int) -> bytes:
        return self._bodies[place]

    def give(self, place: int) -> None:
        pass


async def open_loop(port: int, work: Any, seconds: float) -> list[float]:
    """Seconds of every call, started at a fixed rate whether or not earlier ones have ended."""
    idle = [await Wire.connect(port) for _ in range(SESSIONS)]
    wires = list(idle)
    latencies: list[float] = []

    async def more() -> Wire:
        wires.append(await Wire.connect(port))
        return wires[-1]

    async def one() -> None:
        wire = idle.pop(0) if idle else await more()  # a stalled machine must not slow the arrivals down
        place = await work.take()
        data = work.request(place)
        began = time.perf_counter()
        await wire.post(data)
        latencies.append(time.perf_counter() - began)
        work.give(place)
        idle.append(wire)

    started = time.perf_counter()
    async with asyncio.timeout(seconds + TIMEOUT_S), asyncio.TaskGroup() as group:
        for number in range(round(seconds * RATE_PER_S)):
            await asyncio.sleep(max(0.0, started + number / RATE_PER_S - time.perf_counter()))
            group.create_task(one())
    for wire in wires:
        wire.close()
    return latencies


async def saturate(port: int, work: Any, seconds: float) -> float:
    """Calls per second of callers that never pause."""
    wires = [await Wire.connect(port) for _ in range(CALLERS)]
    count = 0
    started = time.perf_counter()

    async def caller(wire: Wire) -> None:
        nonlocal count
        while time.perf_counter() - started < seconds:
            place = await work.take()
            await wire.post(work.request(place))
            work.give(place)
            count += 1

    async with asyncio.timeout(seconds + TIMEOUT_S), asyncio.TaskGroup() as group:
        for wire in wires:
            group.create_task(caller(wire))
    elapsed = time.perf_counter() - started
    for wire in wires:
        wire.close()
    return count / elapsed


async def added_latency(model: Path, seconds: float, rounds: int) -> dict[str, float]:
    engine = await Process.start("engine", str(model), str(LATENCY_S))
    gateway = await Process.start("gateway", str(model), str(engine.port))
    direct: list[float] = []
    through: list[float] = []
    try:
        for _ in range(rounds):
            direct += await open_loop(engine.port, Plain(generate_bodies(model)), seconds)
            through += await open_loop(gateway.port, Episodes(gateway, chat_bodies()), seconds)
    finally:
        await gateway.stop()
        await engine.stop()

    def p95(values: list[float]) -> float:
        return statistics.quantiles(values, n=20)[-1]

    return {
        "calls": float(len(through)),
        "direct_median_ms": 1e3 * statistics.median(direct),
        "gateway_median_ms": 1e3 * statistics.median(through),
        "added_median_ms": 1e3 * (statistics.median(through) - statistics.median(direct)),
        "added_p95_ms": 1e3 * (p95(through) - p95(direct)),
    }


async def saturation(model: Path, seconds: float, rounds: int) -> dict[str, float]:
    cores = sorted(os.sched_getaffinity(0))
    alone, others = (cores[-1:], cores[:-1]) if len(cores) > 1 else (cores, cores)
    engine = await Process.start("engine", str(model), "0", cores=others)
    gateway = await Process.start("gateway", str(model), str(engine.port), cores=alone)
    proxy = await Process.start("proxy", str(engine.port), cores=alone)
    rows: defaultdict[str, list[float]] = defaultdict(list)

    async def measure(name: str, server: Process, work: Any, *, count: bool) -> None:
        before = [(await process.ask())[1] for process in (server, engine)] + [time.process_time()]
        rate = await saturate(server.port, work, seconds)
        after = [(await process.ask())[1] for process in (server, engine)] + [time.process_time()]
        if not count:
            return
        server_s, engine_s, load_s = (later - sooner for sooner, later in zip(before, after, strict=True))
        rows[f"{name}_calls_per_s"].append(rate)
        rows[f"{name}_cpu_ms_per_call"].append(1e3 * server_s / (rate * seconds))
        rows[f"{name}_busy"].append(server_s / seconds)
        rows[f"{name}_engine_busy"].append(engine_s / seconds)
        rows[f"{name}_load_busy"].append(load_s / seconds)

    os.sched_setaffinity(0, others)
    try:
        for number in range(rounds + 1):  # the first round warms both up
            await measure("proxy", proxy, Plain(generate_bodies(model)), count=number > 0)
            await measure("gateway", gateway, Episodes(gateway, chat_bodies()), count=number > 0)
    finally:
        os.sched_setaffinity(0, cores)
        for server in (proxy, gateway, engine):
            await server.stop()
    cpu = zip(rows["proxy_cpu_ms_per_call"], rows["gateway_cpu_ms_per_call"], strict=True)
    clock = zip(rows["gateway_calls_per_s"], rows["proxy_calls_per_s"], strict=True)
    return {
        "ratio": statistics.median(bare / mine for bare, mine in cpu),
        "ratio_by_clock": statistics.median(mine / bare for mine, bare in clock),
        **{name: statistics.median(values) for name, values in rows.items()},
    }


async def check(model: Path) -> None:
    """The canned conversation must really be one path: otherwise the numbers mean nothing."""
    from agar.ledger.toy import ToyEngine
    from agar.rollout.gateway.chat_completions import read_request
    from agar.rollout.gateway.server import Gateway
    from agar.rollout.gateway.translation import ToolCache

    reply = [row[1] for row in canned_reply(model)["meta_info"]["output_token_logprobs"]]
    gateway = Gateway(engines={"main": ToyEngine(lambda ids: reply)}, families={"main": family_for(model)})
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=64))
    for body in chat_bodies():
        await session.call(read_request(body, ToolCache(), session.messages))
    sealed = session.seal()
    if [node.parent for node in sealed.nodes] != [None, *range(TURNS - 1)] or sealed.divergences:
        raise RuntimeError("the benchmark's conversation is not recorded as one path: its canned reply is wrong")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one round of one side")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per measurement")
    parser.add_argument("--out", type=Path, default=Path("runs/bench_gateway.json"), help="where the numbers go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_toy_model(folder)
        await check(model)
        latency = await added_latency(model, options.seconds, options.rounds)
        print(
            f"open loop, {RATE_PER_S:g} calls/s, engine {1e3 * LATENCY_S:g} ms, {SESSIONS} sessions, "
            f"{latency['calls']:.0f} calls: added median {latency['added_median_ms']:.2f} ms (aim <= 3), "
            f"p95 {latency['added_p95_ms']:.2f} ms"
        )
        rate = await saturation(model, options.seconds, options.rounds)
        print(
            f"saturated: CPU per call {rate['gateway_cpu_ms_per_call']:.3f} ms, of the proxy "
            f"{rate['proxy_cpu_ms_per_call']:.3f} ms: {rate['ratio']:.2f} of the proxy's calls a core (aim >= 0.6)"
        )
        print(
            f"by the clock: {rate['gateway_calls_per_s']:.0f} calls/s, proxy {rate['proxy_calls_per_s']:.0f}, ratio "
            f"{rate['ratio_by_clock']:.2f}; busy: gateway {rate['gateway_busy']:.0%} (engine "
            f"{rate['gateway_engine_busy']:.0%}, load {rate['gateway_load_busy']:.0%}), proxy {rate['proxy_busy']:.0%} "
            f"(engine {rate['proxy_engine_busy']:.0%}, load {rate['proxy_load_busy']:.0%})"
        )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(latency | rate, indent=2) + "\n")
    print(f"written to {options.out}")


SERVERS: dict[str, Callable[[list[str]], Awaitable[None]]] = {
    "engine": lambda a: serve_engine(Path(a[0]), float(a[1])),
    "gateway": lambda a: serve_gateway(Path(a[0]), int(a[1])),
    "proxy": lambda a: serve_proxy(int(a[0])),
}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in SERVERS:
        with collecting_rarely():  # as the commands do that open a gateway; the proxy has it too
            asyncio.run(SERVERS[name](sys.argv[2:]))  # type: ignore[arg-type]
    else:
        asyncio.run(main())
