"""Unruly clients, as rules: everything that real programs do to a gateway, in any order and at once.

Sessions, conversations, retries and calls under way mix freely. After each step the judge looks at every session that
it touched. Whatever is random is drawn by hypothesis or planned by the oracle, so a failing run can be played again.
"""

import asyncio
import copy
import functools
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    get_state_machine_test,
    initialize,
    invariant,
    precondition,
    rule,
)
from unruly.dialects import DIALECTS, Chat, Messages
from unruly.judge import Judge, Played, Sent
from unruly.oracle import WORDS
from unruly.world import PATIENCE_S, World, until

from agar.ledger.config import CanonicaliserConfig, RecordPolicy
from agar.ledger.families import Family
from agar.ledger.node import Divergence
from agar.types import Sampling

T = TypeVar("T")

NONCE = CanonicaliserConfig(name="nonce", pattern=r"nonce=\d+")
POLICIES = (
    RecordPolicy(),
    RecordPolicy(),
    RecordPolicy(canonicalisers=(NONCE,)),
    RecordPolicy(match="strict", truncated="exclude", abandoned="train"),
    RecordPolicy(on_divergence="fork"),
    RecordPolicy(history="as_sent"),
    RecordPolicy(on_divergence="error"),
    RecordPolicy(truncated="stop"),
    RecordPolicy(max_staleness=1),
)
LIMITS: tuple[dict[str, int], ...] = (
    *({},) * 5,
    {"max_turns": 3},
    {"max_tokens": 40},
    {"context_tokens": 160},
)
JSON = {"content-type": "application/json"}
CHANGES = ("nothing", "nothing", "reasoning", "spaces", "keys", "tail", "ids", "null", "parts")
_words = st.sampled_from([word for word in WORDS if word != "  "])  # "" and it are one text to the ledger
_dialects = st.sampled_from(DIALECTS)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Thread:
    """One conversation of one session.

    Attributes:
        history: in the neutral form.
        tail: the node that its last recorded reply is, as long as the history up to there is what was recorded.
        must: differences that the ledger has to notice with the next call.
        busy: a call of it is under way.
    """

    played: Played
    history: list[dict[str, Any]]
    tail: int | None = None
    must: set[tuple[Divergence, int]] = field(default_factory=set)
    busy: bool = False

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
        def counted(self: "UnrulyClients", **drawn: Any) -> None:
            self.steps[function.__name__] += 1
            function(self, **drawn)

        return rule(**strategies)(counted)

    return mark


class UnrulyClients(RuleBasedStateMachine):
    """The machine; `play` runs it in a world."""

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

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the world go on until this is done."""
        return self.runner.run(asyncio.wait_for(work, PATIENCE_S))

    # ----------------------------------------------------------------------------------------- what there is

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

    # ---------------------------------------------------------------------------------------------- the wire

    def request(self, thread: Thread, dialect: Any, *, stream: bool, **extra: Any) -> Sent:
        """A request for the next reply of a conversation."""
        request = {"model": "main", "messages": thread.history, **extra, **({"stream": True} if stream else {})}
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
            return reply.status, await reply.read()

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

    def ask(self, thread: Thread, dialect: Any, *, stream: bool, lost: bool = False, **extra: Any) -> Sent:
        """One call, from the request to the reply."""
        sent = self.request(thread, dialect, stream=stream, **extra)
        if self.is_under_way(thread.played, sent):
            return sent
        status, raw = self.run(self.post(thread.played, sent))
        self.settle(thread, sent, status, raw, lost=lost)
        return sent

    # -------------------------------------------------------------------------------- sessions, conversations

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

    @precondition(lambda self: len(self.open) < 4)
    @step(
        policy=st.sampled_from(POLICIES),
        limits=st.sampled_from(LIMITS),
        max_tokens=st.sampled_from([120, 120, 12, 3]),
        text=_words,
        system=st.none() | _words,
        dialect=_dialects,
        stream=st.booleans(),
    )
    def open_a_session(self, policy, limits, max_tokens, text, system, dialect, stream):
        played = self.open_session(policy, limits, max_tokens)
        self.ask(self.start(played, text, system), dialect, stream=stream)

    @precondition(lambda self: self.open)
    @step(data=st.data(), text=_words, system=st.none() | _words, dialect=_dialects, stream=st.booleans())
    def start_a_conversation(self, data, text, system, dialect, stream):
        played = data.draw(st.sampled_from(self.open))
        self.ask(self.start(played, text, system), dialect, stream=stream)

    def go_on(self, data: Any, thread: Thread, text: str) -> None:
        """Tool results in some order, or a user's words."""
        calls = thread.history[-1].get("tool_calls") or [] if not thread.waits else []
        results = [{"role": "tool", "tool_call_id": c["id"], "content": f"{text}{i}"} for i, c in enumerate(calls)]
        thread.history += data.draw(st.permutations(results)) or [{"role": "user", "content": text}]

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, how=st.sampled_from(CHANGES), dialect=_dialects, stream=st.booleans())
    def continue_a_conversation(self, data, text, how, dialect, stream):
        thread = data.draw(st.sampled_from(self.threads))
        self.change(thread, how)
        self.go_on(data, thread, text)
        self.ask(thread, dialect, stream=stream)

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

    # ----------------------------------------------------------------------------------- retries, lost replies

    @precondition(lambda self: self.bodies)
    @step(data=st.data())
    def retry(self, data):
        """The same body again: the same bytes and no call of an engine, until something is built upon the reply."""
        played, sent = data.draw(st.sampled_from(self.bodies))
        newest = [other for other in played.sent if other.question == sent.question][-1]
        built_upon = newest.said.node is None or any(node.parent == newest.said.node for node in played.nodes)
        calls, before = self.world.calls, len(played.nodes)
        status, raw = self.run(self.post(played, sent))
        self.touched.add(played)
        if status != 200:
            self.refused(played, sent, status, raw)
        elif self.world.calls == calls and len(played.nodes) == before and not built_upon:
            assert newest.said.id.encode() in raw, "a retry got another reply"
            assert newest.body != sent.body or raw == newest.raw, "a retry got other bytes"
        else:
            assert built_upon, "a retry was sampled anew although nothing was built upon its reply"
            again = copy.copy(sent)
            again.raw = raw
            again.said = sent.dialect.merge(raw.decode()) if sent.stream else sent.dialect.read(json.loads(raw))
            again.must = frozenset()
            self.judge.reply(played, again)
            played.sent.append(again)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, dialect=_dialects, stream=st.booleans(), again=st.booleans())
    def lose_a_reply(self, data, text, dialect, stream, again):
        """It never reaches the client, which asks the same again at once, or goes on from where it was, later."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        lost = self.ask(thread, dialect, stream=stream, lost=True)
        if again and lost.said is not None and lost.said.node is not None:
            calls = self.world.calls
            status, raw = self.run(self.post(thread.played, lost))
            assert (status, raw, self.world.calls) == (200, lost.raw, calls)
            self.settle(thread, lost, status, raw)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), seed=st.integers(0, 2), dialect=_dialects, stream=st.booleans())
    def ask_for_a_better_reply(self, data, seed, dialect, stream):
        thread = data.draw(st.sampled_from(self.threads))
        if not thread.waits:
            thread.history.pop()
            thread.must.clear()
            thread.tail = None if thread.tail is None else thread.played.nodes[thread.tail].parent
        if thread.waits:
            self.ask(thread, dialect, stream=stream, seed=seed)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, dialect=_dialects, streams=st.tuples(st.booleans(), st.booleans()))
    def send_everything_twice(self, data, text, dialect, streams):
        """Two connections, one body at the same time; or one of them as a stream."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        before, calls = len(thread.played.nodes), self.world.calls
        pair = [self.request(thread, dialect, stream=stream) for stream in streams]
        if self.is_under_way(thread.played, pair[0]):
            return

        async def both() -> list[tuple[int, bytes]]:
            return list(await asyncio.gather(*(self.post(thread.played, sent) for sent in pair)))

        replies = self.run(both())
        assert len(thread.played.nodes) <= before + 1, "one question became two calls"
        assert self.world.calls <= calls + 1
        for sent, (status, raw), lost in zip(pair, replies, (True, False), strict=True):
            self.settle(thread, sent, status, raw, lost=lost)
        if all(sent.said is not None and sent.said.node is not None for sent in pair):
            assert pair[0].said.id == pair[1].said.id
            assert pair[0].said.message == pair[1].said.message, "a stream says something else than the whole reply"

    # ------------------------------------------------------------------------------ histories that are changed

    @precondition(lambda self: self.answered)
    @step(data=st.data(), text=_words, how=st.sampled_from(CHANGES))
    def fork_a_conversation(self, data, text, how):
        """A sub-agent that is given the conversation up to some reply, while the conversation goes on."""
        thread = data.draw(st.sampled_from(self.answered))
        ends = [i for i, message in enumerate(thread.history) if message["role"] == "assistant"]
        end = data.draw(st.sampled_from(ends))
        fork = Thread(played=thread.played, history=copy.deepcopy(thread.history[: end + 1]))
        if end == ends[-1]:
            fork.tail, fork.must = thread.tail, set(thread.must)
        else:
            fork.tail = None
        thread.played.threads.append(fork)
        self.change(fork, how)
        self.go_on(data, fork, text)
        self.ask(fork, Chat, stream=False)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, count=st.integers(2, 4), dialect=_dialects)
    def run_sub_agents_at_once(self, data, text, count, dialect):
        """Some with prompts of their own, some with the parent's conversation, some in other sessions."""
        threads: list[Thread] = []
        for index in range(count):
            parent = data.draw(st.sampled_from(self.threads))
            if parent in threads or index % 2 == 0:
                threads.append(self.start(parent.played, f"{text} {index}", f"You are sub-agent {index}."))
            else:
                self.go_on(data, parent, f"{text} {index}")
                threads.append(parent)
        asked = [(t, self.request(t, dialect, stream=i % 2 == 0)) for i, t in enumerate(threads)]
        asked = [(t, sent) for t, sent in asked if not self.is_under_way(t.played, sent)]

        async def all_of_them() -> list[tuple[int, bytes]]:
            return list(await asyncio.gather(*(self.post(t.played, sent) for t, sent in asked)))

        for (thread, sent), (status, raw) in zip(asked, self.run(all_of_them()), strict=True):
            self.settle(thread, sent, status, raw)

    @precondition(lambda self: self.answered)
    @step(data=st.data(), text=_words)
    def edit_a_reply(self, data, text):
        thread = data.draw(st.sampled_from(self.answered))
        replies = [m for m in thread.history if m["role"] == "assistant"]
        data.draw(st.sampled_from(replies))["content"] = text
        self.broken(thread)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, dialect=_dialects)
    def put_words_into_its_mouth(self, data, text, dialect):
        """An assistant's message that nobody sampled, in the middle of what is new."""
        thread = data.draw(st.sampled_from(self.threads))
        if not thread.waits:
            self.go_on(data, thread, text)
        call = {"id": "foreign", "type": "function", "function": {"name": "sh", "arguments": '{"a": "</think>"}'}}
        thread.history += [
            {"role": "assistant", "content": f"foreign {text}", "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "foreign", "content": text},
        ]
        thread.played.provoked.add(Divergence.FOREIGN_REPLY)
        self.ask(thread, dialect, stream=False)

    @precondition(lambda self: self.answered)
    @step(data=st.data())
    def reorder_parallel_results(self, data):
        thread = data.draw(st.sampled_from(self.answered))
        for i in range(len(thread.history) - 1):
            if thread.history[i]["role"] == thread.history[i + 1]["role"] == "tool":
                thread.history[i], thread.history[i + 1] = thread.history[i + 1], thread.history[i]
                thread.played.provoked.add(Divergence.RESULT_ORDER)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, dialect=_dialects, stream=st.booleans())
    def compact_a_conversation(self, data, text, dialect, stream):
        thread = data.draw(st.sampled_from(self.threads))
        head = thread.history[:2] if thread.history[0]["role"] == "system" else thread.history[:1]
        thread.history = [
            *head,
            {"role": "assistant", "content": f"summary {text}"},
            {"role": "user", "content": f"{text} Go on."},
        ]
        self.broken(thread)
        self.ask(thread, dialect, stream=stream)

    @precondition(lambda self: [t for t in self.threads if t.history[0]["role"] == "system"])
    @step(data=st.data(), text=_words, nonce=st.integers(1, 10**9), dialect=_dialects)
    def change_the_nonce(self, data, text, nonce, dialect):
        thread = data.draw(st.sampled_from([t for t in self.threads if t.history[0]["role"] == "system"]))
        head = thread.history[0]
        if "nonce=" in head["content"]:
            head["content"] = head["content"].rpartition("nonce=")[0] + f"nonce={nonce}"
            if NONCE in thread.played.policy.canonicalisers:
                thread.played.provoked.add(Divergence.DECLARED)
            else:
                self.broken(thread)
        self.go_on(data, thread, text)
        self.ask(thread, dialect, stream=False)

    @precondition(lambda self: [t for t in self.answered if t.history[-1]["role"] == "assistant"])
    @step(data=st.data(), dialect=_dialects)
    def ask_to_go_on_and_merge_both_parts(self, data, dialect):
        """A cut reply is continued, and the client later sends both halves as one message."""
        threads = [t for t in self.answered if t.history[-1]["role"] == "assistant"]
        thread = data.draw(st.sampled_from(threads))
        first = thread.history[-1]
        thread.history.append({"role": "user", "content": "Go on where you stopped."})
        sent = self.ask(thread, dialect, stream=True)
        if sent.said is None:
            return
        half, _, rest = thread.history[-3:]
        if isinstance(half["content"], str) and not half.get("tool_calls"):
            thread.history[-3:] = [{**rest, "content": half["content"] + (rest["content"] or "")}]
            assert first is half
            self.broken(thread)

    def broken(self, thread: Thread) -> None:
        """The history is not the recorded one any more."""
        thread.tail = None
        thread.must.clear()
        thread.played.provoked |= set(Divergence)  # it may still come to what another path says

    # --------------------------------------------------------------------------------------- calls under way

    @precondition(lambda self: self.threads and len(self.pending) < 3)
    @step(data=st.data(), text=_words, dialect=_dialects, stream=st.booleans(), at=st.integers(0, 8))
    def begin_a_call_that_lasts(self, data, text, dialect, stream, at):
        """The engine holds the reply after some tokens, if it gets so far."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        self.hold(thread, self.request(thread, dialect, stream=stream), at)

    def hold(self, thread: Thread, sent: Sent, at: int) -> None:
        if self.is_under_way(thread.played, sent):
            return
        world = self.world

        async def ask() -> asyncio.Task[tuple[int, bytes]]:
            held, world.oracle.hold_at = world.held, at
            task = asyncio.get_running_loop().create_task(self.post(thread.played, sent))
            await until(lambda: task.done() or world.held > held, "the reply, or half of it")
            await world.let_others_pass()
            world.oracle.hold_at = None
            return task

        task = self.run(ask())
        if task.done():
            self.settle(thread, sent, *task.result())
        else:
            thread.busy = True
            self.pending.append(Pending(thread=thread, sent=sent, clients=[task]))

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, dialect=_dialects, stream=st.booleans(), at=st.integers(0, 8))
    def publish_in_the_middle_of_a_call(self, data, text, dialect, stream, at):
        """Of this one and of those that were under way; or between calls, where it ends before it can be cut."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        self.hold(thread, self.request(thread, dialect, stream=stream), at)
        self.run(self.world.publish())
        self.finish_pending()
        self.stale()

    @precondition(lambda self: self.pending)
    @step()
    def publish_new_weights(self):
        """What runs is cut in the middle and goes on under the new weights."""
        self.run(self.world.publish())
        self.finish_pending()
        self.stale()

    def stale(self) -> None:
        """What was recorded has grown older."""
        self.touched |= {played for played in self.open if played.policy.max_staleness is not None}

    @precondition(lambda self: self.pending)
    @step()
    def abort_what_runs(self):
        """Without new weights: the engine client asks again for the rest."""
        self.run(self.world.control.abort_all())
        self.finish_pending()

    def finish_pending(self) -> None:
        """Every call under way ends; each client that is still there gets the same reply."""
        done, self.pending = self.pending, []
        for call in done:
            played, thread = call.thread.played, call.thread
            thread.busy = False
            self.touched.add(played)
            replies = [self.run(_result(client)) for client in call.clients]
            assert len(set(replies)) <= 1, "clients of one call got different replies"
            if replies:
                self.settle(thread, call.sent, *replies[0])
        tags = {call.thread.played.tag for call in done}
        self.run(until(lambda: not any(self.world.inside[tag] for tag in tags), "the end of every engine call"))

    @precondition(lambda self: any(call.clients for call in self.pending))
    @step(data=st.data())
    def leave_in_mid_call(self, data):
        """The client closes its connection: that ends a stream that nobody else waits for, and no other call."""
        call = data.draw(st.sampled_from([call for call in self.pending if call.clients]))
        client, played = call.clients.pop(), call.thread.played
        tag, nodes = played.tag, len(played.nodes)
        inside, waiting = self.world.inside[tag], sum(played.session._waiting.values())
        self.run(_leave(client))
        self.touched.add(played)
        if call.sent.stream:
            left = lambda: sum(played.session._waiting.values()) == waiting - 1  # noqa: E731
            self.run(until(left, "the gateway's notice that a client of a stream has left"))
        if call.sent.stream and not call.clients:
            self.run(until(lambda: self.world.inside[tag] == inside - 1, "the end of a generation without a client"))
            self.pending.remove(call)
            call.thread.busy = False
            assert len(played.nodes) == nodes
        else:
            assert self.world.inside[tag] == inside

    @precondition(lambda self: self.pending)
    @step(data=st.data())
    def join_a_call_under_way(self, data):
        """The same body from another connection waits for the same reply."""
        call = data.draw(st.sampled_from(self.pending))
        session = call.thread.played.session

        async def join() -> None:
            waiting = sum(session._waiting.values())
            call.clients.append(asyncio.get_running_loop().create_task(self.post(call.thread.played, call.sent)))
            await until(lambda: sum(session._waiting.values()) == waiting + 1, "a second caller of a call under way")

        calls = self.world.calls
        self.run(join())
        assert self.world.calls == calls, "a call under way was asked of the engine again"

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=_words, dialect=_dialects, stream=st.booleans(), fatal=st.booleans())
    def let_the_engine_fail(self, data, text, dialect, stream, fatal):
        """Once, and the engine client asks again; or for good, and the caller is told to."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        sent, calls, nodes = self.request(thread, dialect, stream=stream), self.world.calls, len(thread.played.nodes)
        if self.is_under_way(thread.played, sent):
            return
        self.world.engine.fail("error", count=2 if fatal else 1)
        status, raw = self.run(self.post(thread.played, sent))
        reached = self.world.calls > calls
        self.world.engine.faults = type(self.world.engine.faults)()
        self.touched.add(thread.played)
        if fatal and reached:
            assert status == 502
            assert sent.dialect.error(json.loads(raw))
            assert len(thread.played.nodes) == nodes
        else:
            self.settle(thread, sent, status, raw)

    # ---------------------------------------------------------------------------------------- ends and strangers

    @precondition(lambda self: len(self.open) > 1)
    @step(data=st.data())
    def seal_a_session(self, data):
        """With whatever is under way: those calls get no reply, and nothing of the session is trained."""
        self.seal(data.draw(st.sampled_from(self.open)))

    def seal(self, played: Played) -> None:
        under_way = [call for call in self.pending if call.thread.played is played]
        self.pending = [call for call in self.pending if call.thread.played is not played]

        async def seal() -> list[tuple[int, bytes]]:
            played.sealed = played.session.seal()
            return [await _result(client) for call in under_way for client in call.clients]

        played.open_calls = len(under_way)
        for status, raw in self.run(seal()):
            assert status == 401, raw
        tag = played.tag
        self.run(until(lambda: not self.world.inside[tag], "the end of the calls of a sealed session"))
        self.touched.add(played)

    @precondition(lambda self: len(self.open) < len(self.sessions))
    @step(data=st.data(), dialect=_dialects, stream=st.booleans())
    def call_after_the_seal(self, data, dialect, stream):
        played = data.draw(st.sampled_from([played for played in self.sessions if played.sealed is not None]))
        sent = self.request(played.threads[0], dialect, stream=stream)
        calls = self.world.calls
        status, raw = self.run(self.post(played, sent))
        assert (status, self.world.calls) == (401, calls)
        assert sent.dialect.error(json.loads(raw))
        assert played.session.id.encode() not in raw
        self.touched.add(played)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), key=st.sampled_from(["", "agar-", "guess", "\u00e9", "a" * 5000]), dialect=_dialects)
    def knock_with_a_wrong_key(self, data, key, dialect):
        sent = self.request(data.draw(st.sampled_from(self.threads)), dialect, stream=False)

        async def knock() -> int:
            headers = {"authorization": f"Bearer {key}"} | JSON
            async with self.world.http.post(self.world.url + dialect.path, data=sent.body, headers=headers) as reply:
                return reply.status

        calls = self.world.calls
        assert (self.run(knock()), self.world.calls) == (401, calls)

    @precondition(lambda self: self.open)
    @step(
        data=st.data(),
        body=st.sampled_from([b"", b"{", b"[]", b"\xff", b"{}", b'{"messages":[],"input":[]}', b'{"messages":1}']),
        dialect=_dialects,
    )
    def send_garbage(self, data, body, dialect):
        played = data.draw(st.sampled_from(self.open))
        sent = Sent(dialect=dialect, body=body, stream=False, history=[], tail=None)
        status, raw = self.run(self.post(played, sent))
        assert status == 400
        assert dialect.error(json.loads(raw))
        self.touched.add(played)

    @precondition(lambda self: self.countable)
    @step(data=st.data())
    def count_tokens(self, data):
        """It says how long the prompt will be, and leaves no trace."""
        thread = data.draw(st.sampled_from(self.countable))
        played = thread.played
        body = json.dumps(Messages.body({"messages": copy.deepcopy(thread.history)})).encode()
        url = f"{played.session.path_url}/messages/count_tokens"

        async def count() -> int:
            async with self.world.http.post(url, data=body, headers=JSON) as reply:
                assert reply.status == 200
                return int((await reply.json())["input_tokens"])

        nodes, calls = len(played.nodes), self.world.calls
        counted = self.run(count())
        assert (len(played.nodes), self.world.calls) == (nodes, calls)
        sent = self.ask(thread, Messages, stream=False)
        if sent.said is not None and sent.said.node is not None and self.world.calls > calls:
            assert sent.said.prompt_tokens == counted

    # ------------------------------------------------------------------------------------------- after each step

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


async def _result(client: asyncio.Task[tuple[int, bytes]]) -> tuple[int, bytes]:
    return await client


async def _leave(client: asyncio.Task[tuple[int, bytes]]) -> None:
    client.cancel()
    await asyncio.wait({client})


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a run of the machine came to.

    Attributes:
        rules: how often each rule was played.
        seen: how often something notable came of it, by name.
    """

    rules: Mapping[str, int]
    seen: Mapping[str, int]

    @property
    def steps(self) -> int:
        """Steps in all; the invariants were checked after each."""
        return sum(self.rules.values())


RULES = frozenset(name for name, value in vars(UnrulyClients).items() if hasattr(value, "hypothesis_stateful_rule"))


def play(family: Family, *, examples: int, seed: int, phases: Sequence[Phase] = tuple(Phase)) -> Score:
    """Run the machine in a world of its own.

    Args:
        family: of the model.
        examples: how many sequences of up to 40 steps.
        seed: equal seeds play equal sequences.
        phases: hypothesis' own.
    """
    machine: Any = type("Machine", (UnrulyClients,), {"steps": Counter(), "seen": Counter()})
    searched = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        print_blob=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner() as runner:
        world = World(family)
        runner.run(world.__aenter__())
        try:
            machine.world, machine.runner = world, runner
            hypothesis.seed(seed)(get_state_machine_test(machine, settings=searched))()
        finally:
            runner.run(world.__aexit__())
    return Score(rules=machine.steps, seen=machine.seen)
