"""What recording costs: the work of a call as its session grows, the memory of a record, the audit of a batch.

    python benchmarks/ledger.py [--out runs/bench_ledger.json]

1. Growth. Sessions of 128 turns, every text of them new; reading, session, ledger and writing as they are, without
   HTTP, and an engine that answers at once. What the 128th call costs is divided by what the second costs (medians over
   the sessions): the tokenisation alone, in CPU time and in characters, and the CPU time of the whole call.
2. Memory. What stays allocated (`tracemalloc`) for an open session of 32k tokens, and for its record once it is sealed.
3. Audit. A batch of the quick start's shape (16 groups of 8) is recorded and audited as a recipe does; then Megatron
   takes a step over it with a policy of four million parameters. The audit's CPU time is divided by the time of the
   optimiser step alone; a step of a run also plays the episodes.
"""

import argparse
import asyncio
import gc
import json
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.families import family_for
from agar.ledger.families.base import Family
from agar.ledger.families.chatml import ChatML
from agar.ledger.tokenizer import Tokenizer
from agar.ledger.toy import hash_logprobs, write_toy_model
from agar.ledger.trace import Trace
from agar.recipe.config import LedgerConfig
from agar.rollout.gateway.chat_completions import CHAT_COMPLETIONS
from agar.rollout.gateway.sealed import SealedSession
from agar.rollout.gateway.server import Gateway
from agar.rollout.gateway.session import GatewaySession
from agar.rollout.gateway.translation import ToolCache
from agar.types import (
    Batch,
    GroupId,
    Ids,
    Message,
    Outcome,
    Reward,
    Sample,
    Sampled,
    Sampling,
    TaskRow,
    ToolCall,
)

TURNS = 128
SESSIONS = 24
LONG_TOKENS = 32_768
LONG_SESSIONS = 6
WARM_SESSIONS = 6
GROUPS, GROUP_SIZE, EPISODE_TURNS = 16, 8, 4
STEPS = 3
TOOL = {
    "type": "function",
    "function": {
        "name": "sh",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
WORDS = ("The quick brown fox", "looks around", "thinks a little", "reads the file", "says what it has found there")


class Timed(Tokenizer):
    """A tokenizer that adds up what it is asked to encode.

    Attributes:
        characters: how many it was given.
        cpu_s: CPU seconds that this took.
    """

    characters = 0
    cpu_s = 0.0

    def encode(self, text: str, *, special: bool = False) -> Ids:
        began = time.process_time()
        ids = super().encode(text, special=special)
        self._spent(text, began)
        return ids

    def ids_of(self, text: str) -> Sequence[int]:
        began = time.process_time()
        ids = super().ids_of(text)
        self._spent(text, began)
        return ids

    def _spent(self, text: str, began: float) -> None:
        self.characters += len(text)
        self.cpu_s += time.process_time() - began


class Engine:
    """Answers at once with `reply`."""

    def __init__(self) -> None:
        self.reply: Sampled | None = None

    async def generate(self, ids: Ids, sampling: Sampling, *, routing_key: str) -> Sampled:
        assert self.reply is not None
        return self.reply


class Player:
    """A client with one tool, whose every message is new text.

    Args:
        family: of the policy that it plays with.
        seed: of the texts.
        words: pieces of text in a tool's result; a reply has a third of them.
    """

    body: bytes
    reply: Sampled

    def __init__(self, family: Family, *, seed: int, words: int) -> None:
        self._family, self._draw, self._words = family, random.Random(seed), words
        self.history: list[dict[str, Any]] = [
            {"role": "system", "content": "Find the gold."},
            {"role": "user", "content": f"Start at {self._draw.randrange(10**6)}."},
        ]

    def prepare(self) -> None:
        """Write the next request, and make up what the engine will sample."""
        self.body = json.dumps({"model": "main", "messages": self.history, "tools": [TOOL]}).encode()
        self.reply = self._sampled()

    def _sampled(self) -> Sampled:
        call = ToolCall(id="", name="sh", arguments={"command": f"cat {self._draw.randrange(10**6)}"})
        message = Message(role="assistant", content=self._say(self._words // 3), tool_calls=(call,))
        ids, mask = self._family.transcript([message])
        reply = ids[mask]
        rows = [[float(p), int(t), None] for p, t in zip(hash_logprobs(ids[:4], reply), reply, strict=True)]
        meta = {"output_token_logprobs": rows, "weight_version": 0, "finish_reason": {"type": "stop"}}
        return Sampled.from_generate({"meta_info": meta})

    def hear(self, reply: bytes) -> None:
        """Take the reply, run the tool."""
        message = json.loads(reply)["choices"][0]["message"]
        self.history.append(message)
        for call in message["tool_calls"]:
            result = {"role": "tool", "tool_call_id": call["id"], "content": self._say(self._words)}
            self.history.append(result)

    def _say(self, words: int) -> str:
        return " ".join(f"{self._draw.choice(WORDS)} {self._draw.randrange(10**4)}" for _ in range(words))


class Desk:
    """A gateway without HTTP.

    Attributes:
        tokens: length of the last prompt and its reply.
    """

    def __init__(self, family: Family) -> None:
        self.tokens = 0
        self.family, self.engine, self.tools = family, Engine(), ToolCache()
        self.gateway = Gateway(engines={"main": self.engine}, families={"main": family})

    def open(self) -> GatewaySession:
        """A session."""
        return self.gateway.open(policy="main", sampling=Sampling(max_tokens=4096))

    async def turn(self, session: GatewaySession, player: Player) -> float:
        """The call that a player has prepared; gives its CPU seconds."""
        self.engine.reply = player.reply
        began = time.process_time()
        reply = await session.call(CHAT_COMPLETIONS.read(player.body, self.tools, session.messages))
        text = CHAT_COMPLETIONS.write(reply, "main", session.messages)
        spent_s = time.process_time() - began
        self.tokens = reply.prompt_tokens + len(player.reply)
        player.hear(text)
        return spent_s


# ------------------------------------------------------------------------------------------------------------ growth


async def growth(model: Path) -> dict[str, float]:
    """How a call's cost grows with its session."""
    tokenizer = Timed((model / "tokenizer.json").read_text())
    desk = Desk(ChatML(tokenizer))
    calls: list[list[float]] = [[] for _ in range(TURNS)]
    tokenising: list[list[float]] = [[] for _ in range(TURNS)]
    characters: list[list[int]] = [[] for _ in range(TURNS)]
    for number in range(SESSIONS):
        session, player = desk.open(), Player(desk.family, seed=number, words=6)
        for turn in range(TURNS):
            player.prepare()
            seconds, given = tokenizer.cpu_s, tokenizer.characters
            calls[turn].append(await desk.turn(session, player))
            tokenising[turn].append(tokenizer.cpu_s - seconds)
            characters[turn].append(tokenizer.characters - given)
        if [node.parent for node in session.seal().nodes] != [None, *range(TURNS - 1)]:
            raise RuntimeError("the session is not recorded as one path")

    def grown(rows: Sequence[Sequence[float]]) -> float:
        return statistics.median(rows[-1]) / statistics.median(rows[1])

    return {
        "turns": float(TURNS),
        "last_prompt_tokens": float(desk.tokens),
        "second_tokenisation_us": 1e6 * statistics.median(tokenising[1]),
        "last_tokenisation_us": 1e6 * statistics.median(tokenising[-1]),
        "tokenisation_growth": grown(tokenising),
        "characters_growth": grown(characters),
        "second_call_us": 1e6 * statistics.median(calls[1]),
        "last_call_us": 1e6 * statistics.median(calls[-1]),
        "call_growth": grown(calls),
    }


# ------------------------------------------------------------------------------------------------------------ memory


async def memory(model: Path) -> tuple[dict[str, float], list[SealedSession]]:
    """What a session of 32k tokens holds, and the records."""
    family = family_for(model)
    desk = Desk(family)
    records: list[SealedSession] = []
    open_mb: list[float] = []
    record_mb: list[float] = []
    tracemalloc.start()
    for number in range(WARM_SESSIONS + LONG_SESSIONS):
        before = _allocated_mb()
        session = desk.open()
        await _fill(desk, session, Player(family, seed=1000 + number, words=32))
        held = _allocated_mb() - before
        record = session.seal()
        del session
        if number >= WARM_SESSIONS:  # by then the cache of texts, which all sessions share, is full
            open_mb.append(held)
            record_mb.append(_allocated_mb() - before)
            records.append(record)
    tracemalloc.stop()
    return {
        "session_tokens": statistics.mean(_tokens(record) for record in records),
        "session_mb": statistics.median(open_mb),
        "record_mb": statistics.median(record_mb),
    }, records


async def _fill(desk: Desk, session: GatewaySession, player: Player) -> None:
    tokens = 0
    while tokens < LONG_TOKENS:
        player.prepare()
        await desk.turn(session, player)
        tokens = desk.tokens
    desk.engine.reply = None


def _tokens(record: SealedSession) -> int:
    return sum(len(node.delta) + len(node.sampled) for node in record.nodes)


def _allocated_mb() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


# ------------------------------------------------------------------------------------------------------------- audit


def trace_of(sealed: SealedSession, *, group: int, number: int, reward: float) -> Trace:
    """The trace of an episode."""
    task = f"task {group}"
    return Trace(
        trajectory=f"{group}-{number}", group=GroupId(task=task, ordinal=0), role="agent", policy="main",
        task=TaskRow(key=task), nodes=sealed.nodes, reward=Reward(total=reward), outcome=Outcome.COMPLETED,
    )  # fmt: skip


def audit_cpu_s(traces: Sequence[Trace], family: Family) -> tuple[list[Sample], float]:
    """The rows of traces, and the CPU seconds of auditing them as a recipe does if it says nothing of it."""
    closely = LedgerConfig().closely
    samples = [sample for trace in traces for sample in emit(trace)]
    times = []
    for _ in range(9):
        began = time.process_time()
        report = audit(traces, samples, families={"main": family}, closely=closely)
        times.append(time.process_time() - began)
        report.raise_if_broken()
    return samples, statistics.median(times)


async def audit_of_a_step(folder: Path) -> dict[str, float]:
    """What the audit of a batch costs beside the optimiser step over it."""
    from agar.examples.quickstart.policy import make
    from agar.recipe.start.policy import PolicyConfig
    from agar.trainer.config import OptimizerConfig, TrainerConfig
    from agar.trainer.ray.trainer import RayPolicyTrainer

    shape = PolicyConfig(hidden_size=256, layers=4, heads=8, ffn_size=1024)
    model = await asyncio.to_thread(make, folder / "policy", config=shape)
    family = family_for(model)
    desk = Desk(family)
    traces = []
    for number in range(GROUPS * GROUP_SIZE):
        session, player = desk.open(), Player(family, seed=number, words=2)
        for _ in range(EPISODE_TURNS):
            player.prepare()
            await desk.turn(session, player)
        group, attempt = divmod(number, GROUP_SIZE)
        traces.append(trace_of(session.seal(), group=group, number=attempt, reward=float(number % 3 == 0)))
    samples, audit_s = audit_cpu_s(traces, family)
    optimizer = OptimizerConfig(lr=5e-4, eps=1e-3, weight_decay=0.0, clip_grad=0.4)
    trainer = RayPolicyTrainer(TrainerConfig(model=model, optimizer=optimizer), policy="main", run_dir=folder / "run")
    async with trainer:
        steps = [(await trainer.step(Batch(samples=tuple(samples))))["trainer/step_s"] for _ in range(STEPS)]
    step_s = statistics.median(steps[1:])
    return {
        "audit_tokens": float(sum(len(sample.token_ids) for sample in samples)),
        "audit_ms": 1e3 * audit_s,
        "step_s": step_s,
        "audit_share": audit_s / step_s,
    }


def audit_of_long_sessions(records: Sequence[SealedSession], model: Path) -> dict[str, float]:
    """How fast the audit is where sessions are long."""
    traces = [trace_of(record, group=0, number=number, reward=0.0) for number, record in enumerate(records)]
    samples, audit_s = audit_cpu_s(traces, family_for(model))
    tokens = sum(len(sample.token_ids) for sample in samples)
    return {"long_audit_tokens_per_s": tokens / audit_s}


async def measure(folder: Path) -> dict[str, float]:
    """All of it, printed as it comes."""
    model = write_toy_model(folder / "toy")
    numbers = await growth(model)
    print(
        f"{TURNS} turns, {numbers['last_prompt_tokens']:.0f} tokens: the last call is tokenised in "
        f"{numbers['last_tokenisation_us']:.0f} us, the second in {numbers['second_tokenisation_us']:.0f}, ratio "
        f"{numbers['tokenisation_growth']:.2f} (aim <= 2); in characters {numbers['characters_growth']:.2f}; the "
        f"whole call {numbers['last_call_us']:.0f} us and {numbers['second_call_us']:.0f} us, ratio "
        f"{numbers['call_growth']:.2f}"
    )
    found, records = await memory(model)
    numbers |= found
    print(
        f"a session of {numbers['session_tokens']:.0f} tokens holds {numbers['session_mb']:.2f} MB "
        f"(aim <= 2 MB), its record {numbers['record_mb']:.2f} MB"
    )
    numbers |= audit_of_long_sessions(records, model)
    numbers |= await audit_of_a_step(folder)
    print(
        f"the audit of {numbers['audit_tokens']:.0f} tokens takes {numbers['audit_ms']:.1f} ms, the optimiser step "
        f"{numbers['step_s']:.2f} s ({100 * numbers['audit_share']:.2f} %, aim < 1); in long sessions it checks "
        f"{numbers['long_audit_tokens_per_s'] / 1e6:.1f} million tokens a second"
    )
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/bench_ledger.json"), help="where the numbers go")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        numbers = asyncio.run(measure(Path(folder)))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(numbers, indent=2) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
