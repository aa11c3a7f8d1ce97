"""Whatever an agent does to its history, every trained token has the prefix it was sampled on.

A state machine plays an unruly client over the JSON of the wire. Its engine prices each token by a hash of the whole
prefix, so that a wrong prefix anywhere shows as a wrong number in the emitted rows: no invariant is assumed.
"""

import asyncio
import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import agar.ledger.emission as emission_module
from agar.errors import AgarError, EngineAborted
from agar.ledger.audit import audit
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Exclusion, emission, emit
from agar.ledger.families import family_for
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.gateway.anthropic_messages import MESSAGES
from agar.rollout.gateway.budget import Limits
from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.chat_completions import CHAT_COMPLETIONS
from agar.rollout.gateway.responses import RESPONSES
from agar.rollout.gateway.session import GatewaySession
from agar.rollout.gateway.translation import ToolCache
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow, ToolCall

TOOLS = [{"type": "function", "function": {"name": "sh", "description": "Run.", "parameters": {"type": "object"}}}]
WORDS = st.sampled_from(["cat 47", "box 83\n", " gold", "<|im_end|>", "<tool_call>{}", "é\u2028", "", "  ", "</think>"])
ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from([1, 1.5, True, None, "x", ["y", {"z": 0}]]), max_size=3
)

CHANGES = st.sampled_from(["nothing", "nothing", "reasoning", "spaces", "keys", "tail", "ids", "null"])


def change(message, how):
    """What real programs do to a reply before they send it back."""
    if how == "reasoning":
        message.pop("reasoning_content", None)
    elif how == "tail":
        message["content"] = (message.get("content") or "") + " \n"
    elif how == "null":
        message["content"] = message.get("content") or None
    for call in message.get("tool_calls") or []:
        function = call["function"]
        value = json.loads(function["arguments"])
        if how == "spaces":
            function["arguments"] = json.dumps(value, indent=1)
        elif how == "keys":
            function["arguments"] = json.dumps(dict(sorted(value.items(), reverse=True)))
        elif how == "ids":
            call["id"] = "other" + call["id"]


class Chat:
    """The dialect that the machine plays in."""

    dialect = CHAT_COMPLETIONS

    @staticmethod
    def body(request: dict) -> dict:
        return request

    @staticmethod
    def message(reply: dict) -> dict:
        return reply["choices"][0]["message"]


def chat_message(texts: list[str], thoughts: list[str], calls: list[tuple[str, str, str]]) -> dict:
    message = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    return message


class Messages:
    """The same conversations in Anthropic's dialect."""

    dialect = MESSAGES

    @classmethod
    def body(cls, request: dict) -> dict:
        rows: list[dict] = []
        for row in request["messages"]:
            if row["role"] == "tool":
                block = {"type": "tool_result", "tool_use_id": row["tool_call_id"], "content": row["content"]}
                if rows and isinstance(rows[-1]["content"], list) and rows[-1]["role"] == "user":
                    rows[-1]["content"].append(block)
                else:
                    rows.append({"role": "user", "content": [block]})
            elif row["role"] == "assistant":
                rows.append({"role": "assistant", "content": cls.blocks(row)})
            else:
                rows.append(row)
        tools = [{"name": "sh", "description": "Run.", "input_schema": {"type": "object"}}]
        return request | {"messages": rows, "tools": tools}

    @staticmethod
    def blocks(row: dict) -> list[dict]:
        blocks: list[dict] = []
        if row.get("reasoning_content"):
            blocks.append({"type": "thinking", "thinking": row["reasoning_content"], "signature": "s"})
        if row.get("content"):
            blocks.append({"type": "text", "text": row["content"]})
        for call in row.get("tool_calls") or []:
            value = json.loads(call["function"]["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": value})
        return blocks

    @staticmethod
    def message(reply: dict) -> dict:
        blocks = reply["content"]
        return chat_message(
            [block["text"] for block in blocks if block["type"] == "text"],
            [block["thinking"] for block in blocks if block["type"] == "thinking"],
            [(b["id"], b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"],
        )


class Responses:
    """The same conversations as items of OpenAI's Responses."""

    dialect = RESPONSES

    @staticmethod
    def body(request: dict) -> dict:
        items: list[dict] = []
        for row in request["messages"]:
            if row["role"] == "tool":
                output = {"call_id": row["tool_call_id"], "output": row["content"]}
                items.append({"type": "function_call_output", **output})
                continue
            if row.get("reasoning_content"):
                summary = [{"type": "summary_text", "text": row["reasoning_content"]}]
                items.append({"type": "reasoning", "summary": summary})
            calls = row.get("tool_calls") or []
            if row.get("content") or not (calls or row.get("reasoning_content")):
                items.append({"type": "message", "role": row["role"], "content": row["content"] or ""})
            items += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
        rest = {name: value for name, value in request.items() if name != "messages"}
        return rest | {"input": items, "tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}

    @staticmethod
    def message(reply: dict) -> dict:
        items = reply["output"]
        return chat_message(
            [part["text"] for item in items if item["type"] == "message" for part in item["content"]],
            [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]],
            [(i["call_id"], i["name"], i["arguments"]) for i in items if i["type"] == "function_call"],
        )


class Engine:
    """Says what the test drew; remembers everything."""

    def __init__(self):
        self.version = 0
        self.reply: list[int] = []
        self.finish = Finish.STOP
        self.calls: list[tuple[np.ndarray, np.ndarray]] = []

    async def generate(self, ids, sampling, *, routing_key):
        cut = len(self.reply) > sampling.max_tokens
        reply = np.array(self.reply[: sampling.max_tokens], np.int32)
        self.calls.append((ids.copy(), reply))
        half = len(reply) // 2  # weights change in the middle of every reply
        versions = np.r_[np.full(half, self.version), np.full(len(reply) - half, self.version + 1)]
        self.version += 1
        return Sampled.restore(
            token_ids=reply,
            logprobs=hash_logprobs(ids, reply),
            policy_versions=versions,
            finish=Finish.LENGTH if cut and self.finish is Finish.STOP else self.finish,
        )


class UnrulyClient(RuleBasedStateMachine):
    record = RecordPolicy()
    family = None
    wire: type = Chat

    @initialize(data=st.data(), max_tokens=st.sampled_from([200, 12, 3]))
    def open(self, data, max_tokens):
        self.engine = Engine()
        self.runner = asyncio.Runner()
        self.tools = ToolCache()
        self.session = GatewaySession(
            id="key",
            policy="main",
            engine=self.engine,
            family=self.family,
            sampling=Sampling(max_tokens=max_tokens),
            limits=Limits(),
            record=self.record,
            base_url="",
        )
        self.threads: list[list[dict]] = []  # conversations under way, each ending in what the model is to answer
        self.bodies: list[bytes] = []
        self.stored: dict[bytes, bytes] = {}
        self.threads.append([{"role": "user", "content": "Start."}])
        self.ask(data, 0)

    def send(self, body: bytes) -> dict | None:
        try:
            call = self.wire.dialect.read(body, self.tools, self.session.messages)
            reply = self.runner.run(self.session.call(call))
        except EngineAborted:
            return None
        text = self.wire.dialect.write(reply, "main", self.session.messages)
        assert self.wire.dialect.events(reply, "main", self.session.messages).endswith(b"\n\n")
        self.bodies.append(body)
        self.stored[body] = text
        return self.wire.message(json.loads(text))

    def ask(self, data, thread: int, **extra) -> None:
        self.model_will_answer(data)
        history = self.threads[thread]
        request = self.wire.body({"messages": history, "tools": TOOLS, **extra})
        message = self.send(json.dumps(request).encode())
        if message is not None:
            message.pop("parse_error", None)
            history.append(message)

    # ------------------------------------------------------------------------------------------ the model

    def model_will_answer(self, data):
        how = data.draw(st.sampled_from(["say", "say", "say", "say", "say", "ramble", "abort"]))
        self.engine.finish = Finish.ABORT if how == "abort" else Finish.STOP
        if how == "ramble":
            self.engine.reply = data.draw(st.lists(st.integers(0, 300), max_size=8))
            return
        message = Message(
            role="assistant",
            content=data.draw(WORDS),
            reasoning=data.draw(st.none() | WORDS),
            tool_calls=tuple(
                ToolCall(id="", name="sh", arguments=a) for a in data.draw(st.lists(ARGUMENTS, max_size=2))
            ),
        )
        split = data.draw(st.integers(0, 3))
        ids, mask = self.family.transcript([message])
        self.engine.reply = [
            piece
            for i, token in enumerate(ids[mask].tolist())
            for piece in (self._split(token) if i % 4 < split else [token])
        ]

    def _split(self, token):
        """The token's text in single characters: ids that no encoder would give."""
        if token in self.family.tokenizer.added.values():
            return [token]
        text = self.family.tokenizer.decode([token])
        pieces = [i for c in text for i in self.family.tokenizer.encode(c).tolist()]
        return pieces if self.family.tokenizer.decode(pieces) == text else [token]

    # ------------------------------------------------------------------------------------------ the client

    @rule(data=st.data(), text=WORDS, system=st.none() | WORDS)
    def start_a_conversation(self, data, text, system):
        head = [] if system is None else [{"role": "system", "content": system}]
        self.threads.append([*head, {"role": "user", "content": text}])
        self.ask(data, len(self.threads) - 1)

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), text=WORDS, how=CHANGES)
    def go_on(self, data, text, how):
        thread = data.draw(st.integers(0, len(self.threads) - 1))
        replies = [m for m in self.threads[thread] if m["role"] == "assistant"]
        if replies:
            change(data.draw(st.sampled_from(replies)), how)
        self._continue(data, thread, text)

    def _continue(self, data, thread, text):
        history = self.threads[thread]
        calls = history[-1].get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": c["id"], "content": f"{text}{i}"} for i, c in enumerate(calls)]
        history += data.draw(st.permutations(results)) or [{"role": "user", "content": text}]
        self.ask(data, thread)

    @precondition(lambda self: self._replies())
    @rule(data=st.data(), text=WORDS, how=CHANGES)
    def fork_a_conversation(self, data, text, how):
        """A sub-agent that is given the conversation up to some reply, while the conversation goes on."""
        ends = [
            (t, i) for t, thread in enumerate(self.threads) for i, m in enumerate(thread) if m["role"] == "assistant"
        ]
        thread, end = data.draw(st.sampled_from(ends))
        self.threads.append(copy.deepcopy(self.threads[thread][: end + 1]))
        change(self.threads[-1][-1], how)
        self._continue(data, len(self.threads) - 1, text)

    def _replies(self):
        return [m for thread in self.threads for m in thread if m["role"] == "assistant"]

    @precondition(lambda self: self._replies())
    @rule(data=st.data(), text=WORDS)
    def edit_a_reply(self, data, text):
        data.draw(st.sampled_from(self._replies()))["content"] = text

    @precondition(lambda self: any(m["role"] == "tool" for thread in self.threads for m in thread))
    @rule(data=st.data())
    def reorder_parallel_results(self, data):
        thread = data.draw(st.sampled_from(self.threads))
        for i in range(len(thread) - 1):
            if thread[i]["role"] == thread[i + 1]["role"] == "tool":
                thread[i], thread[i + 1] = thread[i + 1], thread[i]

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), text=WORDS)
    def compact_a_conversation(self, data, text):
        thread = data.draw(st.integers(0, len(self.threads) - 1))
        self.threads[thread][1:] = [{"role": "assistant", "content": text}, {"role": "user", "content": text}]
        self.ask(data, thread)

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), seed=st.integers(0, 2))
    def ask_the_same_again_in_another_body(self, data, seed):
        thread = data.draw(st.integers(0, len(self.threads) - 1))
        while len(self.threads[thread]) > 1 and self.threads[thread][-1]["role"] == "assistant":
            self.threads[thread].pop()
        self.ask(data, thread, seed=seed)

    @precondition(lambda self: self.bodies)
    @rule(data=st.data())
    def retry(self, data):
        body = data.draw(st.sampled_from(self.bodies))
        before, calls = self.stored[body], len(self.engine.calls)
        self.model_will_answer(data)
        self.send(body)
        if len(self.engine.calls) == calls:
            assert self.stored[body] == before

    @rule(body=st.sampled_from([b"{", b'{"messages": []}', b'{"messages": [{"role": "user", "content": 1}]}']))
    def send_garbage(self, body):
        with pytest.raises(BadRequest):
            self.wire.dialect.read(body, self.tools, self.session.messages)

    # ------------------------------------------------------------------------------------------ the proof

    def trace(self) -> Trace:
        forest = self.session._forest
        return Trace(
            trajectory="t",
            group=GroupId(task="k", ordinal=0),
            role="agent",
            policy="main",
            task=TaskRow(key="k"),
            nodes=tuple(forest.nodes),
            divergences=tuple(forest.differences),
            reward=Reward(total=1.0),
            outcome=Outcome.COMPLETED,
        )

    def every_trained_token_is_priced_on_its_own_prefix_and_none_is_lost(self, trace):
        result = emission(trace, self.record)
        trained = 0
        for row in result.samples:
            oracle = hash_logprobs(np.array([], np.int32), row.token_ids)  # I1 and I3, from the row alone
            assert (row.logprobs == np.where(row.loss_mask, oracle, np.float32(0))).all()
            trained += int(row.loss_mask.sum())
        left_out = sum(run.stop - run.start for run in result.excluded)
        assert all(run.reason in Exclusion for run in result.excluded)
        assert trained + left_out == sum(len(reply) for _, reply in self.engine.calls)  # I2
        for node, (prompt, reply) in zip(trace.nodes, self.engine.calls, strict=True):
            assert trace.prompt(node.id).tolist() == prompt.tolist()  # I7: what the engine really got
            assert node.sampled.token_ids.tolist() == reply.tolist()
        assert len(result.samples) <= len(trace.leaves)

    def teardown(self):
        if not hasattr(self, "session"):
            return
        sealed = self.session.seal()
        self.runner.close()
        trace = self.trace()
        self.every_trained_token_is_priced_on_its_own_prefix_and_none_is_lost(trace)
        assert sealed.open_calls == 0
        rows = emit(trace, self.record)
        audit([trace], rows, self.record, families={"main": self.family}).raise_if_broken()
        again = Trace.load(trace.dump())
        assert again.dump() == trace.dump()
        for before, after in zip(rows, emit(again, self.record), strict=True):
            assert before.token_ids.tobytes() == after.token_ids.tobytes()
            assert before.logprobs.tobytes() == after.logprobs.tobytes()
            assert before.loss_mask.tobytes() == after.loss_mask.tobytes()


def play(tmp_path_factory, record, examples, phases=tuple(Phase), derandomize=False, wire=Chat):
    machine = type("Machine", (UnrulyClient,), {"record": record, "wire": wire})
    machine.family = family_for(write_toy_model(tmp_path_factory.mktemp("model")))
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        database=None,
        derandomize=derandomize,
        print_blob=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()


def test_an_unruly_client_never_breaks_the_record(tmp_path_factory):
    play(tmp_path_factory, RecordPolicy(), 40)


@pytest.mark.parametrize("wire", [Messages, Responses])
def test_nor_does_it_in_another_dialect(tmp_path_factory, wire):
    play(tmp_path_factory, RecordPolicy(), 15, wire=wire)


def test_nor_does_it_under_the_other_policies(tmp_path_factory):
    play(tmp_path_factory, RecordPolicy(match="strict", truncated="exclude", abandoned="train"), 15)
    play(tmp_path_factory, RecordPolicy(on_divergence="fork"), 15)
    play(tmp_path_factory, RecordPolicy(history="as_sent", sampler="recorded"), 15)


def re_encode_replies(monkeypatch):
    commit = Forest.commit

    def broken(self, plan, sampled, turn, **fields):
        text = self._prompts._family.tokenizer
        again = text.encode(text.decode(sampled.token_ids), special=True)
        if len(again) and len(again) <= len(sampled):
            sampled = Sampled.restore(
                token_ids=again,
                logprobs=sampled.logprobs[: len(again)],
                policy_versions=sampled.policy_versions[: len(again)],
                finish=sampled.finish,
            )
        return commit(self, plan, sampled, turn, **fields)

    monkeypatch.setattr(Forest, "commit", broken)


def render_history_again(monkeypatch):
    def broken(self, parent, differences, sent, *where):
        plan = extend(self, parent, differences, sent, *where)
        return plan and replace(plan, prompt=self._prompts._family.render(sent, plan.tools))

    extend = Forest._extend
    monkeypatch.setattr(Forest, "_extend", broken)


def drop_the_separator(monkeypatch):
    """The record lacks a token that the engine was given."""

    def broken(self, *where):
        plan = extend(self, *where)
        return plan and replace(plan, delta=plan.delta[1:])

    extend = Forest._extend
    monkeypatch.setattr(Forest, "_extend", broken)


def keep_one_accumulator(monkeypatch):
    """Every call is taken for the continuation of the newest one."""
    monkeypatch.setattr(Forest, "_choose", lambda self, state, sent, respelled: (self.nodes[-1], ()))
    monkeypatch.setattr(Forest, "context", lambda self, node: self._contexts[len(self.nodes) - 1])
    monkeypatch.setattr(Trace, "path", lambda self, node: list(self.nodes[: node + 1]))


def train_shared_replies_in_every_row(monkeypatch):
    class Forgetful(set):
        def update(self, *_):
            pass

    monkeypatch.setattr(emission_module, "set", Forgetful, raising=False)


def lose_forks(monkeypatch):
    """Only the deepest path is delivered."""
    leaves = Trace.leaves
    monkeypatch.setattr(Trace, "leaves", property(lambda self: leaves.fget(self)[-1:]))


def shift_logprobs(monkeypatch):
    whole = emission_module._sample

    def broken(*arguments, **fields):
        row = whole(*arguments, **fields)
        return row.but(logprobs=np.where(row.loss_mask, np.roll(row.logprobs, 1), np.float32(0)))

    monkeypatch.setattr(emission_module, "_sample", broken)


def sample_twice_for_one_reply(monkeypatch):
    """A retry reaches the engine again and its tokens are nowhere."""
    generate = Engine.generate

    async def broken(self, ids, sampling, *, routing_key):
        await generate(self, ids, sampling, routing_key=routing_key)
        return await generate(self, ids, sampling, routing_key=routing_key)

    monkeypatch.setattr(Engine, "generate", broken)


@pytest.mark.parametrize(
    "seed_bug",
    [
        re_encode_replies,
        render_history_again,
        drop_the_separator,
        keep_one_accumulator,
        train_shared_replies_in_every_row,
        lose_forks,
        shift_logprobs,
        sample_twice_for_one_reply,
    ],
    ids=lambda bug: bug.__name__,
)
def test_the_proof_has_teeth(tmp_path_factory, monkeypatch, seed_bug):
    seed_bug(monkeypatch)
    with pytest.raises((AssertionError, AgarError, ValueError, ExceptionGroup)):
        play(tmp_path_factory, RecordPolicy(), 300, phases=(Phase.generate,), derandomize=True)
