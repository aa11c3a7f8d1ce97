"""The clients of an unruly run: their sessions, conversations and calls, and what the rules have in common.

After each step the judge looks at every session that the step touched. Whatever is random is drawn by hypothesis or
planned by the oracle, so a failing run can be played again.
"""

import asyncio
import copy
import functools
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from unruly.dialects import DIALECTS, Chat, events_of
from unruly.judge import Judge
from unruly.oracle import WORDS
from unruly.session import Played, Sent
from unruly.world import PATIENCE_S, World, until

from agar.ledger.config import RecordPolicy
from agar.ledger.node import Divergence
from agar.types import Sampling

T = TypeVar("T")

JSON = {"content-type": "application/json"}
CHANGES = st.sampled_from(["nothing", "nothing", "reasoning", "spaces", "keys", "tail", "ids", "null", "parts"])
"""What real programs do to a reply before they send it back."""
TEXTS = st.sampled_from([word for word in WORDS if word != "  "])  # "" and it are one text to the ledger
SPOKEN = st.sampled_from(DIALECTS)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Thread:
    """One conversation of one session.

    Attributes:
        history: in the neutral form.
        tail: the node that its last recorded reply is, as long as the history up to there is what was recorded.
        must: differences that the ledger has to notice with the next call.
        busy: a call of it is under way.
        held: the history that the gateway holds under the id of its last reply, and that id in its dialect.
    """

    played: Played
    history: list[dict[str, Any]]
    tail: int | None = None
    must: set[tuple[Divergence, int]] = field(default_factory=set)
    busy: bool = False
    held: tuple[list[dict[str, Any]], Any, str] | None = None

    def __repr__(self) -> str:
        return f"thread {self.played.threads.index(self)} of {self.played!r}, {len(self.history)} messages"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every field

    @property
    def waits(self) -> bool:
        """Whether the model is to speak next."""
        return self.history[-1]["role"] != "assistant"


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Pending:
    """A call whose reply the engine holds in the middle."""

    thread: Thread
    sent: Sent
    clients: list[asyncio.Task[tuple[int, bytes]]]

    def __repr__(self) -> str:
        return f"a call of {self.thread!r} under way for {len(self.clients)} clients"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every field


def step(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule that is counted."""

    def mark(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def counted(self: "Clients", **drawn: Any) -> None:
            self.steps[function.__name__] += 1
            function(self, **drawn)

        return rule(**strategies)(counted)

    return mark


class Clients(RuleBasedStateMachine):
    """What every rule needs.

    Attributes:
        world: set by `play`, as the others are.
        runner: runs the world's event loop, while a rule waits for something.
        steps: how often each rule was played.
        seen: what came of it.
        sessions: all, in order of their numbers.
        pending: calls that the engine holds.
        touched: sessions to be judged after this step.
    """

    world: World
    runner: asyncio.Runner
    steps: Counter[str]
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.judge = Judge(self.world)
        self.sessions: list[Played] = []
        self.pending: list[Pending] = []
        self.touched: set[Played] = set()

    def run(self, work: Awaitable[T]) -> T:
        """Let the world go on until this is done."""
        return self.runner.run(asyncio.wait_for(work, PATIENCE_S))

    @property
    def open(self) -> list[Played]:
        return [played for played in self.sessions if played.sealed is None]

    @property
    def threads(self) -> list[Thread]:
        return [t for played in self.open for t in played.threads if not t.busy]

    @property
    def answered(self) -> list[Thread]:
        return [t for t in self.threads if any(m["role"] == "assistant" for m in t.history)]

    @property
    def countable(self) -> list[Thread]:
        return [t for t in self.threads if t.waits and t.played.policy.on_divergence != "error"]

    @property
    def bodies(self) -> list[tuple[Played, Sent]]:
        return [(played, sent) for played in self.open for sent in played.sent if not self.is_under_way(played, sent)]

    def request(self, thread: Thread, dialect: Any, /, *, stream: bool, leave_out: int = 0, **extra: Any) -> Sent:
        """A request for the next reply of a conversation."""
        request = {"model": "main", "messages": thread.history[leave_out:], **extra}
        if stream:
            request["stream"] = True
        return Sent(
            dialect=dialect,
            body=json.dumps(dialect.body(copy.deepcopy(request)), separators=(",", ":"), ensure_ascii=False).encode(),
            stream=stream,
            history=copy.deepcopy(thread.history),
            tail=thread.tail,
            must=frozenset(thread.must),
        )

    async def post(self, played: Played, sent: Sent) -> tuple[int, bytes]:
        """Send it, with the key where this session's programs have it."""
        key, url, headers = played.session.id, self.world.url, dict(JSON)
        where = played.number % 3
        if where == 0:
            headers["authorization"] = f"Bearer {key}"
        elif where == 1:
            headers["x-api-key"] = key
        else:
            url += f"/s/{key}"
        async with self.world.http.post(url + sent.dialect.path, data=sent.body, headers=headers) as reply:
            raw = b""
            try:
                async for piece in reply.content.iter_any():
                    raw += piece
            except aiohttp.ClientPayloadError:  # a stream that was broken off says why in its last event
                assert sent.stream, "a whole reply was broken off"
                return 401 if b"sealed" in raw else 502, json.dumps(events_of(raw.decode())[-1]).encode()
            return reply.status, raw

    def settle(self, thread: Thread, sent: Sent, status: int, raw: bytes, *, lost: bool = False) -> None:
        """A reply came; its client reads it, unless it never reached the client."""
        played = thread.played
        self.touched.add(played)
        if status != 200:
            self.refused(played, sent, status, raw)
            return
        sent.raw = raw
        sent.said = sent.dialect.merge(raw.decode()) if sent.stream else sent.dialect.read(json.loads(raw))
        self.judge.reply(played, sent)
        played.sent.append(sent)
        if lost:
            return
        thread.history.append(copy.deepcopy(sent.said.message))
        thread.held = (copy.deepcopy(thread.history), sent.dialect, sent.said.whole_id) if sent.is_held else None
        thread.tail = sent.said.node
        thread.must.clear()
        if sent.said.node is None:
            played.provoked.add(Divergence.FOREIGN_REPLY)

    def refused(self, played: Played, sent: Sent, status: int, raw: bytes) -> None:
        """An error: which ones may come, and in which shape."""
        text = sent.dialect.error(json.loads(raw))
        if status == 400:
            assert played.policy.on_divergence == "error", text
            assert "the history sent differs from the record" in text
        else:
            assert (status, played.sealed is not None) == (401, True), f"{status}: {text}"

    def is_under_way(self, played: Played, sent: Sent) -> bool:
        """Whether the engine holds the reply to this very body: it would wait with it."""
        return any(p.thread.played is played and p.sent.question == sent.question for p in self.pending)

    def ask(self, thread: Thread, dialect: Any, /, *, stream: bool, lost: bool = False, **extra: Any) -> Sent:
        """One call, from the request to the reply; see `request` for what else may be named."""
        sent = self.request(thread, dialect, stream=stream, **extra)
        if self.is_under_way(thread.played, sent):
            return sent
        status, raw = self.run(self.post(thread.played, sent))
        self.settle(thread, sent, status, raw, lost=lost)
        return sent

    def open_session(self, policy: RecordPolicy, limits: dict[str, int], max_tokens: int) -> Played:
        session = self.world.gateway.open(
            policy="main", sampling=Sampling(max_tokens=max_tokens), record=policy, **limits
        )
        played = Played(session=session, number=len(self.sessions), policy=policy, limited=bool(limits))
        self.sessions.append(played)
        return played

    def start(self, played: Played, text: str, system: str | None) -> Thread:
        head = [] if system is None else [{"role": "system", "content": f"{system} {played.secret} nonce=0"}]
        number = len(played.threads)
        history = [*head, {"role": "user", "content": f"{played.secret}{number}. {text}"}]
        played.threads.append(Thread(played=played, history=history))
        return played.threads[-1]

    @initialize(max_tokens=st.sampled_from([120, 120, 12]))
    def begin(self, max_tokens: int) -> None:
        self.world.forget()
        self.ask(self.start(self.open_session(RecordPolicy(), {}, max_tokens), "Start.", None), Chat, stream=False)

    def go_on(self, data: Any, thread: Thread, text: str) -> None:
        """Tool results in some order, or a user's words."""
        calls = thread.history[-1].get("tool_calls") or [] if not thread.waits else []
        results = [{"role": "tool", "tool_call_id": c["id"], "content": f"{text}{i}"} for i, c in enumerate(calls)]
        results = data.draw(st.permutations(results))
        if len(results) > 1 and text == "":  # some programs keep one result of several
            results = results[:1]
        thread.history += results or [{"role": "user", "content": text}]

    def change(self, thread: Thread, how: str) -> None:
        """What real programs do to the last reply before they send it back."""
        message = thread.history[-1]
        if message["role"] != "assistant":
            return
        provoked: Divergence | None = None
        if how == "reasoning" and message.pop("reasoning_content", ""):
            provoked = Divergence.REASONING_DROPPED
        elif how == "tail" and isinstance(message["content"], str):
            message["content"] += " \n"
            provoked = Divergence.WHITESPACE
        elif how == "null":
            message["content"] = message["content"] or None
        elif how == "parts" and message["content"] and isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        for call in message.get("tool_calls") or []:
            function = call["function"]
            value = json.loads(function["arguments"])
            if how == "spaces":
                function["arguments"] = json.dumps(value, indent=1)
            elif how == "keys":
                function["arguments"] = json.dumps(dict(sorted(value.items(), reverse=True)))
            elif how == "ids":
                call["id"] = "other" + call["id"]
                provoked = Divergence.CALL_IDS
            if how in ("spaces", "keys"):
                thread.played.provoked.add(Divergence.ARGUMENTS_RESPELLED)
        if provoked is not None:
            thread.played.provoked.add(provoked)
            if thread.tail is not None:
                thread.must.add((provoked, thread.tail))

    def broken(self, thread: Thread) -> None:
        """The history is not the recorded one any more."""
        thread.tail = None
        thread.must.clear()
        thread.played.provoked |= set(Divergence)  # it may still come to what another path says

    def seal(self, played: Played) -> None:
        under_way = [call for call in self.pending if call.thread.played is played]
        self.pending = [call for call in self.pending if call.thread.played is not played]

        async def seal() -> list[tuple[int, bytes]]:
            played.sealed = played.session.seal()
            return [await client for call in under_way for client in call.clients]

        played.open_calls = len(under_way)
        for status, raw in self.run(seal()):
            assert status == 401, raw
        tag = played.tag
        self.run(until(lambda: not self.world.inside[tag], "the end of the calls of a sealed session"))
        self.touched.add(played)

    @invariant()
    def everything_holds(self) -> None:
        touched, self.touched = self.touched, set()
        for played in touched:
            self.judge.session(played)

    def teardown(self) -> None:
        for played in self.open:
            self.seal(played)
        for played in self.sessions:
            self.judge.session(played)
            self.seen.update(self.judge.notable(played))
