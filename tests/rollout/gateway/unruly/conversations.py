"""Rules on conversations: how they begin, branch and are rewritten."""

import asyncio
import copy

from hypothesis import strategies as st
from hypothesis.stateful import precondition
from unruly.clients import CHANGES, SPOKEN, TEXTS, Clients, Thread, step
from unruly.dialects import Chat, Messages

from agar.ledger.config import CanonicaliserConfig, RecordPolicy
from agar.ledger.node import Divergence

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


class Conversations(Clients):
    """What programs do to a history."""

    @precondition(lambda self: len(self.open) < 4)
    @step(
        policy=st.sampled_from(POLICIES),
        limits=st.sampled_from(LIMITS),
        max_tokens=st.sampled_from([120, 120, 12, 3]),
        text=TEXTS,
        system=st.none() | TEXTS,
        dialect=SPOKEN,
        stream=st.booleans(),
    )
    def open_a_session(self, policy, limits, max_tokens, text, system, dialect, stream):
        played = self.open_session(policy, limits, max_tokens)
        self.ask(self.start(played, text, system), dialect, stream=stream)

    @precondition(lambda self: self.open)
    @step(data=st.data(), text=TEXTS, system=st.none() | TEXTS, dialect=SPOKEN, stream=st.booleans())
    def start_a_conversation(self, data, text, system, dialect, stream):
        played = data.draw(st.sampled_from(self.open))
        self.ask(self.start(played, text, system), dialect, stream=stream)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, how=CHANGES, dialect=SPOKEN, stream=st.booleans())
    def continue_a_conversation(self, data, text, how, dialect, stream):
        thread = data.draw(st.sampled_from(self.threads))
        self.change(thread, how)
        self.go_on(data, thread, text)
        self.ask(thread, dialect, stream=stream)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, stream=st.booleans())
    def begin_a_thread(self, data, text, stream):
        """Of Anthropic's Messages: the gateway holds it from now on."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        self.ask(thread, Messages, stream=stream, thread={"type": "create"})

    @precondition(lambda self: self.held)
    @step(data=st.data(), text=TEXTS, stream=st.booleans())
    def send_what_is_new_only(self, data, text, stream):
        """The gateway holds the rest, under the id of its last reply."""
        thread = data.draw(st.sampled_from(self.held))
        before, dialect, id = thread.held
        self.go_on(data, thread, text)
        if dialect is Messages:
            named = {"thread": {"type": "continue", "previous_message_id": id}}
        else:
            named = {"previous_response_id": id}
        self.ask(thread, dialect, stream=stream, leave_out=len(before), **named)

    @property
    def held(self) -> list[Thread]:
        return [t for t in self.threads if t.held is not None and t.held[0] == t.history]

    @precondition(lambda self: self.answered)
    @step(data=st.data(), text=TEXTS, how=CHANGES)
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
    @step(data=st.data(), text=TEXTS, count=st.integers(2, 4), dialect=SPOKEN)
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
    @step(data=st.data(), text=TEXTS)
    def edit_a_reply(self, data, text):
        thread = data.draw(st.sampled_from(self.answered))
        replies = [m for m in thread.history if m["role"] == "assistant"]
        data.draw(st.sampled_from(replies))["content"] = text
        self.broken(thread)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN)
    def putTEXTS_into_its_mouth(self, data, text, dialect):
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
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN, stream=st.booleans())
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
    @step(data=st.data(), text=TEXTS, nonce=st.integers(1, 10**9), dialect=SPOKEN)
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
    @step(data=st.data(), dialect=SPOKEN)
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
