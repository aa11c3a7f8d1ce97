"""What of an agent's run can be trained, and is it exact? Makes `docs/fidelity.md`.

    python benchmarks/fidelity.py [--write]

An agent talks to the real gateway over HTTP; sessions, ledger, emission and audit are the real ones. The model is
`ToyEngine`, whose log-prob of a token is a hash of the whole prefix: a trained token that stands on any other prefix
than the one it was sampled on shows as another number. Replies and what the agent does wrong are drawn from fixed
seeds, so that the table is the same every time.
"""

import argparse
import asyncio
import hashlib
import json
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from agar.ledger.audit import audit
from agar.ledger.config import CanonicaliserConfig, RecordPolicy
from agar.ledger.emission import emit
from agar.ledger.families import family_for
from agar.ledger.families.chatml import ChatML
from agar.ledger.toy import ToyEngine, hash_logprobs, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.gateway.server import Gateway
from agar.types import GroupId, Ids, Message, Outcome, Reward, Sampling, TaskRow, ToolCall

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"
EPISODES = 12
TURNS = 8
SPLIT = 0.05
TOOL = {
    "type": "function",
    "function": {
        "name": "sh",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
WORDS = ("the quick brown fox", "looks around", "thinks a little", "reads the file", "says what it has found", "gold")
Body = dict[str, Any]


# ------------------------------------------------------------------------------------------------------- the model


class Model:
    """Says some reasoning, some text and a tool call; a share of its tokens is split as no tokenizer would.

    What it says depends on the prompt, on how often that prompt has come, and on the seed: not on the order of calls.
    """

    def __init__(self, family: ChatML, *, split: float, seed: int) -> None:
        self._family, self._split, self._seed = family, split, seed
        self._times: Counter[bytes] = Counter()
        self.tokens = 0
        self.split_tokens = 0

    def reply(self, prompt: Ids) -> list[int]:
        """Ids of the reply to a prompt, stop token included."""
        key = hashlib.blake2b(prompt.tobytes()).digest()
        draw = random.Random(f"{self._seed} {key.hex()} {self._times[key]}")
        self._times[key] += 1
        call = ToolCall(id="", name="sh", arguments={"command": f"cat {draw.randint(10, 99)}", "lines": draw.random()})
        message = Message(role="assistant", content=_say(draw, 4), reasoning=_say(draw, 9), tool_calls=(call,))
        ids, mask = self._family.transcript([message])
        reply: list[int] = ids[mask].tolist()
        can = {at: pieces for at, token in enumerate(reply) if len(pieces := self._pieces(token)) > 1}
        chosen = draw.sample(sorted(can), min(len(can), int(self._split * len(reply) + draw.random())))
        self.tokens += len(reply)
        self.split_tokens += len(chosen)
        return [piece for at, token in enumerate(reply) for piece in (can[at] if at in chosen else [token])]

    def _pieces(self, token: int) -> list[int]:
        """The token's text character by character; the token itself where that is another text."""
        if token in self._family.tokenizer.added.values():
            return [token]
        text = self._family.tokenizer.decode([token])
        pieces = [int(i) for character in text for i in self._family.tokenizer.encode(character)]
        return pieces if self._family.tokenizer.decode(pieces) == text else [token]


def _say(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words))


# ------------------------------------------------------------------------------------------------------- the agent


@dataclass(kw_only=True)
class Agent:
    """A program that keeps its own history as the bodies it sends, and the bad habits of such programs."""

    http: aiohttp.ClientSession
    url: str
    key: str
    draw: random.Random
    change: Callable[[Body], None] = lambda message: None
    resend: float = 0.0
    ask_again: float = 0.0
    stamps: bool = False
    calls: int = 0

    async def turn(self, history: list[Body]) -> None:
        """One model call and the result of its tool."""
        sent = [stamped(history[0], self.draw.getrandbits(64)), *history[1:]] if self.stamps else history
        body: Body = {"model": "main", "messages": sent, "tools": [TOOL]}
        message = await self._post(body)
        if self.draw.random() < self.resend:  # the reply was lost on its way: the client library sends the same again
            message = await self._post(body)
        if self.draw.random() < self.ask_again:  # the program does not like the reply and asks for another
            message = await self._post({**body, "metadata": {"attempt": "2"}})
        self.change(message)
        history.append(message)
        for call in message.get("tool_calls") or []:
            history.append({"role": "tool", "tool_call_id": call["id"], "content": f"box {self.draw.randint(10, 99)}"})

    async def _post(self, body: Body) -> Body:
        self.calls += 1
        data = json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        async with self.http.post(f"{self.url}/chat/completions", data=data, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == 200, text
        message: Body = json.loads(text)["choices"][0]["message"]
        return message


def stamped(system: Body, number: int) -> Body:
    """The system prompt with the number of the request in it, as some programs send it."""
    return system | {"content": f"{system['content']} Request {number:016x}."}


def drop_reasoning(message: Body) -> None:
    """What most clients do: the field is not theirs."""
    message.pop("reasoning_content", None)
    message.pop("reasoning", None)


def respell(message: Body) -> None:
    """Parse the arguments and write them again: other spaces, other order of keys."""
    for call in message.get("tool_calls") or []:
        values = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(sorted(values.items(), reverse=True)), indent=1)


def opening(system: str, user: str) -> list[Body]:
    """A new conversation."""
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


async def straight(agent: Agent) -> None:
    """One conversation."""
    history = opening("Find the gold.", f"Start at {agent.draw.randint(10, 99)}.")
    for _ in range(TURNS):
        await agent.turn(history)


async def with_user_turns(agent: Agent) -> None:
    """One conversation in which a user speaks every other turn."""
    history = opening("Find the gold.", f"Start at {agent.draw.randint(10, 99)}.")
    for turn in range(TURNS):
        await agent.turn(history)
        if turn % 2:
            history.append({"role": "user", "content": _say(agent.draw, 3)})


async def with_two_agents(agent: Agent) -> None:
    """Halfway, two sub-agents work at the same time; their answers go into the main conversation."""
    history = opening("Find the gold.", f"Start at {agent.draw.randint(10, 99)}.")
    for _ in range(TURNS // 2):
        await agent.turn(history)
    parts = [opening(f"Search the {side} side.", "Go.") for side in ("left", "right")]

    async def work(part: list[Body]) -> None:
        for _ in range(TURNS // 2):
            await agent.turn(part)

    await asyncio.gather(*(work(part) for part in parts))
    history.append({"role": "user", "content": f"Found: {parts[0][-1]['content']} and {parts[1][-1]['content']}"})
    for _ in range(TURNS // 2):
        await agent.turn(history)


async def with_compaction(agent: Agent) -> None:
    """Twice the history is replaced by a summary of it."""
    history = opening("Find the gold.", f"Start at {agent.draw.randint(10, 99)}.")
    for turn in range(TURNS):
        if turn in {TURNS // 3 + 1, 2 * TURNS // 3 + 1}:
            history = opening("Find the gold.", f"So far: {_say(agent.draw, 6)}. Go on.")
        await agent.turn(history)


# --------------------------------------------------------------------------------------------------- the scenarios


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of the table; `text` says what the agent does."""

    name: str
    text: str
    play: Callable[[Agent], Awaitable[None]]
    split: float = SPLIT
    habits: dict[str, Any] = field(default_factory=dict)
    record: RecordPolicy = field(default_factory=RecordPolicy)


SCENARIOS = [
    Scenario(
        name="verbatim",
        text="sends its history back as it got it; every sampled token is canonical",
        play=straight,
        split=0.0,
    ),
    Scenario(name="non-canonical tokens", text="the same, with split tokens", play=straight),
    Scenario(
        name="reasoning dropped",
        text="leaves the reasoning out of the history",
        play=straight,
        habits={"change": drop_reasoning},
    ),
    Scenario(
        name="tool JSON respelled",
        text="parses tool arguments and writes them again with other spaces and another order of keys; a user speaks "
        "in between",
        play=with_user_turns,
        habits={"change": respell},
    ),
    Scenario(
        name="two parallel sub-agents",
        text="lets two sub-agents with prompts of their own work at the same time, in the middle of its own work",
        play=with_two_agents,
    ),
    Scenario(
        name="compaction + retries",
        text="replaces the history by a summary twice; sends one call in five again as it was (its reply was lost), "
        "and asks one in five again for a better reply: the first one is never built upon, and is left out",
        play=with_compaction,
        habits={"resend": 0.2, "ask_again": 0.2},
    ),
    Scenario(
        name="nonce",
        text="puts another number into its system prompt with every request; the record policy declares it",
        play=straight,
        habits={"stamps": True},
        record=RecordPolicy(canonicalisers=(CanonicaliserConfig(name="nonce", pattern=r"Request [0-9a-f]{16}\."),)),
    ),
    Scenario(
        name="nonce, not declared",
        text="the same, with the default record policy: no history is ever continued",
        play=straight,
        habits={"stamps": True},
    ),
]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a scenario came to, over all its episodes."""

    name: str
    calls: float
    samples: float
    sampled: int
    trained: int
    split: float
    excluded: dict[str, int]
    prefix_violations: int
    audit_violations: int
    divergences: dict[str, int]

    def cells(self) -> list[str]:
        """The row of the table."""
        out = ", ".join(f"{reason} {100 * n / self.sampled:.1f} %" for reason, n in sorted(self.excluded.items()))
        noticed = ", ".join(f"{kind} {n}" for kind, n in sorted(self.divergences.items()))
        return [
            self.name,
            f"{self.calls:.1f}",
            f"{self.samples:.1f}",
            f"{100 * self.trained / self.sampled:.1f} %",
            out or "none",
            str(self.prefix_violations),
            str(self.audit_violations),
            noticed or "none",
        ]


async def measure(scenario: Scenario, model_dir: Path, *, episodes: int = EPISODES) -> Row:
    """Play a scenario and count."""
    family = family_for(model_dir)
    assert isinstance(family, ChatML)
    model = Model(family, split=scenario.split, seed=1)
    traces: list[Trace] = []
    calls = 0
    engine = ToyEngine(model.reply)
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway, aiohttp.ClientSession() as http:
        for number in range(episodes):
            session = gateway.open(policy="main", sampling=Sampling(max_tokens=512), record=scenario.record)
            agent = Agent(
                http=http,
                url=session.base_url,
                key=session.id,
                draw=random.Random(f"{scenario.name} {number}"),
                **scenario.habits,
            )
            await scenario.play(agent)
            sealed = session.seal()
            calls += agent.calls
            traces.append(
                Trace(
                    trajectory=str(number),
                    group=GroupId(task=str(number), ordinal=number),
                    role="agent",
                    policy="main",
                    task=TaskRow(key=str(number)),
                    nodes=sealed.nodes,
                    divergences=sealed.divergences,
                    reward=Reward(total=1.0),
                    outcome=Outcome.COMPLETED,
                    open_calls=sealed.open_calls,
                )
            )
    return count(scenario, traces, family, calls=calls, split=model.split_tokens / model.tokens)


def count(scenario: Scenario, traces: Sequence[Trace], family: ChatML, *, calls: int, split: float) -> Row:
    """Emit, audit, and hold every trained log-prob against the oracle."""
    samples = [sample for trace in traces for sample in emit(trace, scenario.record)]
    report = audit(traces, samples, scenario.record, families={"main": family})
    nothing = np.empty(0, np.int32)
    wrong = sum(
        int((hash_logprobs(nothing, sample.token_ids) != sample.logprobs)[sample.loss_mask].sum()) for sample in samples
    )
    return Row(
        name=scenario.name,
        calls=calls / len(traces),
        samples=len(samples) / len(traces),
        sampled=report.sampled_tokens,
        trained=report.trained_tokens,
        split=split,
        excluded={reason.value: n for reason, n in report.excluded.items()},
        prefix_violations=wrong,
        audit_violations=len(report.violations),
        divergences={kind.value: n for kind, n in report.divergences.items()},
    )


# ------------------------------------------------------------------------------------------------------- the page

HEAD = [
    "scenario",
    "calls per trajectory",
    "samples per trajectory",
    "sampled tokens trained",
    "left out, with the reason",
    "prefix violations",
    "audit violations",
    "differences noticed",
]
TEXT = """# Token fidelity

Made by `benchmarks/fidelity.py`; a test makes it again and compares. Do not edit it.

{table}

- A **sample** is a training row. One row per conversation is the least there can be: a sub-agent is a conversation of
  its own, and so is what follows a compaction. Recording every call by itself would give as many rows as calls.
- A **prefix violation** is a trained token whose log-prob is not that of its prefix in the row. The model is an oracle:
  its log-prob of a token is a hash of all tokens before it, so one wrong id anywhere before a token shows.
- **Audit violations** are those of the invariants that [every batch is checked for](ledger.md#what-is-checked).

Each scenario is {episodes} episodes of {turns} turns (sub-agents: twice that) over HTTP, against the real gateway;
every reply has reasoning, text and a tool call. Seeds are fixed. From the second scenario on {split:.1f} % of the
sampled tokens are split where no tokenizer would.

{scenarios}

```bash
python benchmarks/fidelity.py --write
```
"""


def page(rows: Sequence[Row]) -> str:
    """The text of `docs/fidelity.md`."""
    return TEXT.format(
        table=_table(HEAD, [row.cells() for row in rows]),
        scenarios=_table(["scenario", "what the agent does"], [[one.name, one.text] for one in SCENARIOS]),
        episodes=EPISODES,
        turns=TURNS,
        split=100 * rows[1].split,
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_line(head), "|" + "---|" * len(head), *(_line(row) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


async def measure_all() -> list[Row]:
    """Every row."""
    with tempfile.TemporaryDirectory() as folder:
        model_dir = write_toy_model(folder)
        return [await measure(scenario, model_dir) for scenario in SCENARIOS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/fidelity.md")
    options = parser.parse_args()
    text = page(asyncio.run(measure_all()))
    if options.write:
        PAGE.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
