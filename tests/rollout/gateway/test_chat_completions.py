"""What a chat completion asks for beside its conversation."""

import asyncio
import json
from pathlib import Path

import httpx
import numpy as np
import openai
import pydantic
import pytest

from agar.errors import EngineError
from agar.ledger.config import RecordPolicy
from agar.ledger.node import Divergence, Edge
from agar.rollout.gateway.server import Gateway
from agar.types import Finish, Message, Sampling, ToolCall

WIRE = Path(__file__).parent / "wire"
ASK = {"role": "user", "content": "Start."}
MORE = {"role": "user", "content": "Go on."}
TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object"}}}]
CALLS = tuple(ToolCall(id="", name="sh", arguments={"n": n}) for n in (1, 2))
TALK = Message(role="assistant", content="Both.", tool_calls=CALLS)


@pytest.fixture
def serve(family, scripted):
    """A gateway over an engine that says the given replies, one after the other."""

    def made(*replies, **fields):
        engine = scripted(*replies, **fields)
        return Gateway(engines={"main": engine}, families={"main": family})

    return made


def opened(gateway, **fields):
    return gateway.open(**({"policy": "main", "sampling": Sampling(max_tokens=64)} | fields))


def client_of(session):
    return openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0)


async def chat(client, messages=(ASK,), **fields):
    return await client.chat.completions.create(model="main", messages=list(messages), **fields)


# -------------------------------------------------------------------------------------------- several replies


async def test_several_replies_are_siblings_and_the_history_says_which_one_goes_on(serve, trained):
    async with serve("one", "two", "three", "end") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            reply = await chat(client, n=3)
            texts = [choice.message.content for choice in reply.choices]
            assert texts == ["one", "two", "three"]
            assert [choice.index for choice in reply.choices] == [0, 1, 2]
            assert session.last_node == 0
            last = await chat(client, [ASK, {"role": "assistant", "content": "two"}, MORE])
        sealed = session.seal()
    assert last.choices[0].message.content == "end"
    assert [node.parent for node in sealed.nodes] == [None, None, None, 1]
    assert [node.choice for node in sealed.nodes] == [0, 1, 2, 0]
    assert [node.edge for node in sealed.nodes] == [Edge.FIRST, Edge.REWRITTEN, Edge.REWRITTEN, Edge.EXTEND]
    assert reply.usage.completion_tokens == sum(len(node.sampled) for node in sealed.nodes[:3])
    rows = trained(sealed)
    assert len(rows) == 3
    assert sum(row.loss_mask.sum() for row in rows) == sum(len(node.sampled) for node in sealed.nodes)


async def test_several_replies_may_hang_below_an_earlier_one(serve, trained):
    async with serve("zero", "one", "two", "end") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            await chat(client)
            history = [ASK, {"role": "assistant", "content": "zero"}, MORE]
            await chat(client, history, n=2)
            for said in ("one", "two"):  # both may be gone on from
                await chat(client, [*history, {"role": "assistant", "content": said}, MORE])
        sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0, 0, 1, 2]
    assert len(trained(sealed)) == 2


async def test_a_repeated_call_for_several_replies_gets_the_same_until_one_is_built_upon(serve):
    async with serve("one", "two", "three", "four", "five") as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url, body = f"{session.path_url}/chat/completions", {"messages": [ASK], "n": 2}
        first = (await http.post(url, json=body)).content
        assert (await http.post(url, json=body)).content == first
        await http.post(url, json={"messages": [ASK, {"role": "assistant", "content": "two"}, MORE]})
        assert (await http.post(url, json=body)).content != first
        assert len(session.seal().nodes) == 5


async def test_replies_to_one_call_have_seeds_of_their_own(serve):
    async with serve("one", "two") as gateway:
        session = opened(gateway, sampling=Sampling(seed=5))
        async with client_of(session) as client:
            await chat(client, n=2, seed=9)
        sealed = session.seal()
    assert [node.sampling.seed for node in sealed.nodes] == [5, 6]
    assert [node.requested for node in sealed.nodes] == [{"seed": 9}] * 2


async def test_budgets_hold_for_several_replies(serve):
    async with serve("The quick brown fox looks around.") as gateway:
        session = opened(gateway, max_turns=1, max_tokens=7)
        async with client_of(session) as client:
            cut = await chat(client, n=3)
            stopped = await chat(client, n=2, user="again")
        sealed = session.seal()
    assert [len(node.sampled) for node in sealed.nodes] == [2, 2, 2]
    assert [choice.finish_reason for choice in cut.choices] == ["length"] * 3
    assert [(choice.finish_reason, choice.message.content) for choice in stopped.choices] == [("length", "")] * 2
    assert stopped.usage.completion_tokens == 0


async def test_a_failure_of_one_reply_ends_the_others_and_records_none(family, engine):
    class Half:
        """Fails every second call; the others never end by themselves."""

        calls = given_up = 0

        async def generate(self, ids, sampling, *, routing_key):
            self.calls += 1
            if self.calls % 2 == 0:
                raise EngineError("gone")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise

    half = Half()
    async with Gateway(engines={"main": half}, families={"main": family}) as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            with pytest.raises(openai.InternalServerError, match="gone"):
                await chat(client, n=2)
        assert (half.calls, half.given_up) == (2, 1)
        assert session.seal().nodes == ()


async def test_a_stream_of_several_replies_says_whose_each_chunk_is(serve):
    async with serve("one", TALK) as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            fields = {"n": 2, "logprobs": True, "tools": TOOLS}
            async with client.chat.completions.stream(
                model="main", messages=[ASK], stream_options={"include_usage": True}, **fields
            ) as stream:
                streamed = await stream.get_final_completion()
            plain = await chat(client, **fields)
        sealed = session.seal()
    assert (len(sealed.nodes), sealed.repeats) == (2, 1)
    assert streamed.usage == plain.usage
    for ours, theirs in zip(streamed.choices, plain.choices, strict=True):
        assert (ours.message.content, ours.finish_reason) == (theirs.message.content, theirs.finish_reason)
        assert [call.id for call in ours.message.tool_calls or ()] == [
            call.id for call in theirs.message.tool_calls or ()
        ]
        assert [row.model_dump() for row in ours.logprobs.content] == [
            row.model_dump() for row in theirs.logprobs.content
        ]


# ------------------------------------------------------------------------------------------------ stop texts


@pytest.mark.parametrize("stop", ["Observation:", ["Calling tools:", "Observation:"]])
async def test_a_text_that_ends_a_reply_is_cut_off_and_the_conversation_goes_on_from_there(serve, stop, trained):
    async with serve("I look.\nObservation: gold", "end") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            reply = await chat(client, stop=stop)
            said = reply.choices[0].message.content
            await chat(client, [ASK, {"role": "assistant", "content": said}, MORE])
        sealed = session.seal()
    assert (said, reply.choices[0].finish_reason) == ("I look.\n", "stop")
    assert set(sealed.nodes[0].sampling.stop) == set([stop] if isinstance(stop, str) else stop)
    assert (sealed.nodes[1].parent, sealed.divergences, sealed.nodes[0].requested) == (0, (), {})
    assert reply.usage.completion_tokens == len(sealed.nodes[0].sampled)
    assert len(trained(sealed)) == 1


async def test_a_text_that_ends_a_reply_inside_its_reasoning_ends_it_there(serve):
    async with serve(Message(role="assistant", content="gold", reasoning="Hm. STOP Well.")) as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            message = (await chat(client, stop="STOP")).choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm. ", "")


# ------------------------------------------------------------------------------------- reasoning in the history


@pytest.mark.parametrize(
    ("sent", "dropped"),
    [
        ({"reasoning_content": ""}, True),
        ({"reasoning": " \n"}, True),
        ({"reasoning_content": "", "reasoning": "Hm."}, False),
    ],
)
async def test_reasoning_that_comes_back_blank_was_left_out_and_not_changed(serve, trained, sent, dropped):
    async with serve(Message(role="assistant", content="gold", reasoning="Hm."), "yes") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            await chat(client)
            await chat(client, [ASK, {"role": "assistant", "content": "gold", **sent}, MORE])
        sealed = session.seal()
    assert sealed.nodes[1].parent == 0
    assert [each.kind for each in sealed.divergences] == ([Divergence.REASONING_DROPPED] if dropped else [])
    assert len(trained(sealed)) == 1


# ------------------------------------------------------------------------------------------------- log-probs


async def test_logprobs_are_the_ledgers(serve, family):
    async with serve("é gold", "again") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            rows = (await chat(client, logprobs=True, top_logprobs=0)).choices[0].logprobs.content
            without = (await chat(client, user="x")).choices[0].logprobs
        node = session.seal().nodes[0]
    assert without is None
    assert np.array([row.logprob for row in rows], np.float32).tobytes() == node.sampled.logprobs.tobytes()
    assert [row.token for row in rows] == [family.tokenizer.decode([token]) for token in node.sampled.token_ids]
    assert all(row.bytes is None or bytes(row.bytes).decode() == row.token for row in rows)
    assert rows[-1].token == "<|im_end|>"


# -------------------------------------------------------------------------------------------------- tool calls


async def test_calls_that_the_caller_forbids_are_withheld_and_said(serve, trained):
    async with serve(TALK, "end") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            reply = await chat(client, tools=TOOLS, tool_choice="none")
            message = reply.choices[0].message
            await chat(client, [ASK, {"role": "assistant", "content": message.content}, MORE], tools=TOOLS)
        sealed = session.seal()
    assert (message.content, message.tool_calls, reply.choices[0].finish_reason) == ("Both.", None, "stop")
    assert 'sh({"n":1}), sh({"n":2}) withheld' in message.parse_error
    assert (sealed.nodes[1].parent, sealed.divergences) == (0, ())
    assert len(trained(sealed)) == 1


async def test_a_caller_that_takes_one_call_at_a_time_gets_the_first(serve):
    async with serve(TALK) as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            message = (await chat(client, tools=TOOLS, parallel_tool_calls=False)).choices[0].message
            assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"n": 1}]
            both = (await chat(client, tools=TOOLS, parallel_tool_calls=True)).choices[0].message
            assert len(both.tool_calls) == 2


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "sh"}}])
async def test_a_call_that_the_caller_demands_is_a_wish(serve, choice):
    async with serve("No.") as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            reply = await chat(client, tools=TOOLS, tool_choice=choice)
        assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("No.", "stop")
        assert session.seal().nodes[0].requested == {"tool_choice": choice}


# --------------------------------------------------------------------------------------------- form of output


class Gold(pydantic.BaseModel):
    amount: int


class Watching:
    """Remembers how it was asked to sample."""

    def __init__(self, engine):
        self.engine, self.samplings = engine, []

    async def generate(self, ids, sampling, *, routing_key):
        self.samplings.append(sampling)
        return await self.engine.generate(ids, sampling, routing_key=routing_key)


@pytest.mark.parametrize("form", ["refuse", "ignore", "constrain"])
async def test_a_form_of_output_is_served_as_the_record_policy_says(family, scripted, form):
    engine = Watching(scripted('{"amount":29}'))
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        session = opened(gateway, record=RecordPolicy(output_form=form))
        async with client_of(session) as client:
            if form == "refuse":
                with pytest.raises(openai.BadRequestError, match=r"set ledger\.record\.output_form"):
                    await client.chat.completions.parse(model="main", messages=[ASK], response_format=Gold)
                return
            reply = await client.chat.completions.parse(model="main", messages=[ASK], response_format=Gold)
            async with client.chat.completions.stream(
                model="main", messages=[ASK], response_format=Gold, user="streamed"
            ) as stream:
                assert (await stream.get_final_completion()).choices[0].message.parsed == Gold(amount=29)
            await chat(client, response_format={"type": "json_object"})
            await chat(client, response_format={"type": "text"}, user="x")
        nodes = session.seal().nodes
    assert reply.choices[0].message.parsed == Gold(amount=29)
    schemas = [None if s.json_schema is None else json.loads(s.json_schema) for s in engine.samplings]
    if form == "constrain":
        assert schemas[0]["properties"]["amount"]["type"] == "integer"
        assert schemas[1:] == [schemas[0], {"type": "object"}, None]
        assert [node.requested for node in nodes[:3]] == [{}, {"user": "streamed"}, {}]
    else:
        assert schemas == [None] * 4
        assert nodes[0].requested["response_format"]["type"] == "json_schema"
        assert nodes[2].requested == {"response_format": {"type": "json_object"}}


# --------------------------------------------------------------------------------------------- unknown fields


async def test_fields_that_no_model_names_are_kept_wherever_they_stand(serve):
    tool = {"type": "function", "function": {"name": "sh", "cost": 3}}
    said = {"role": "assistant", "content": [{"type": "text", "text": "a", "mood": "calm"}], "name": "bob"}
    async with serve("one") as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        body = {"messages": [ASK, said, MORE], "tools": [tool], "novel": 1, "stream_options": {"x": 1}}
        assert (await http.post(f"{session.path_url}/chat/completions", json=body)).status_code == 200
        node = session.seal().nodes[0]
    assert node.requested == {
        "novel": 1,
        "messages[1]": {"name": "bob", "content[0].mood": "calm"},
        "tools[0]": {"function.cost": 3},
        "stream_options": {"x": 1},
    }
    assert node.sampled.finish is Finish.STOP


async def test_unknown_fields_of_a_history_are_kept_once_with_the_call_that_first_sent_them(serve):
    async with serve("one", "two", "three") as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        history = [ASK | {"name": "bob"}]
        for _ in range(3):
            reply = await http.post(f"{session.path_url}/chat/completions", json={"messages": history})
            said = reply.json()["choices"][0]["message"] | {"provider_fields": {"x": len(history)}}
            history += [said, MORE | {"name": "eve"}]
        nodes = session.seal().nodes
    assert [node.parent for node in nodes] == [None, 0, 1]
    assert [node.requested for node in nodes] == [
        {"messages[0]": {"name": "bob"}},
        {"messages[1]": {"provider_fields": {"x": 1}}, "messages[2]": {"name": "eve"}},
        {"messages[3]": {"provider_fields": {"x": 3}}, "messages[4]": {"name": "eve"}},
    ]


# ------------------------------------------------------------------------------------ recorded exchanges

PARENTS = {
    "langchain-chat": [None, 0],
    "mini-swe-agent": [None, 0],
    "openai-agents-chat": [None, 0],
    "openai-python-chat": [None, 0],
    "smolagents-code": [None, None],  # writes its calls into the text of its replies: another history each time
    "smolagents-toolcalling": [None, None],
}


def test_every_recorded_exchange_is_played():
    recorded = {path.stem for path in WIRE.glob("*.json") if '"/v1/chat/completions"' in path.read_text("utf-8")}
    assert recorded == set(PARENTS)


def reply_of(pair):
    said = pair["response_scripted"]["message"]
    calls = [call["function"] for call in said.get("tool_calls", ())]
    return Message(
        role="assistant",
        content=said["content"],
        reasoning=said.get("reasoning_content"),
        tool_calls=tuple(ToolCall(id="", name=c["name"], arguments=json.loads(c["arguments"])) for c in calls),
    )


@pytest.mark.parametrize("name", PARENTS)
async def test_what_real_programs_sent_is_accepted_and_continues_its_path(serve, trained, restored, name):
    pairs = json.loads((WIRE / f"{name}.json").read_text("utf-8"))["pairs"]
    async with serve(*map(reply_of, pairs)) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway, sampling=Sampling(max_tokens=512))
        for pair in pairs:
            body = restored(pair["request"]["body"])
            reply = await http.post(f"{session.path_url}/chat/completions", json=body)
            assert reply.status_code == 200, reply.text
            message = reply.json()["choices"][0]["message"]
            assert not [text for text in body.get("stop", ()) if text in message["content"]]
        sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == PARENTS[name]
    foreign = Divergence.FOREIGN_REPLY in {difference.kind for difference in sealed.divergences}
    assert foreign == name.startswith("smolagents")
    assert len(trained(sealed)) == PARENTS[name].count(None)


@pytest.mark.parametrize(("content", "told"), [(None, "I will not."), ("", "I will not."), ("Gold.", "Gold.")])
async def test_a_refusal_in_the_history_is_told_where_there_is_no_content(serve, content, told):
    async with serve("end") as gateway:
        session = opened(gateway)
        refused = {"role": "assistant", "content": content, "refusal": "I will not."}
        async with client_of(session) as client:
            await chat(client, [ASK, refused, MORE])
        [node] = session.seal().nodes
    assert [message.text for message in node.messages] == ["Start.", told, "Go on."]
