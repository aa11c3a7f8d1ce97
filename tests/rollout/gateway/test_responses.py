import asyncio
import json
from pathlib import Path

import httpx
import openai
import pydantic
import pytest

from agar.errors import EngineError
from agar.ledger.config import RecordPolicy
from agar.ledger.node import Divergence
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall

WIRE = Path(__file__).parent / "wire"
TOOLS = [{"type": "function", "name": "sh", "description": "Run.", "parameters": {"type": "object", "properties": {}}}]
BODY = {"model": "main", "input": "Start."}


def serving(engine, family, **settings):
    return Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(**settings))


async def test_openai_client_plays_two_turns_with_a_tool(client, session, engine, trained):
    first = await client.responses.create(**BODY, tools=TOOLS, instructions="Be brief.")
    assert (first.status, first.output_text) == ("completed", "Look.")
    call = first.output[1]
    assert (call.type, call.call_id, call.name) == ("function_call", "call_0_0", "sh")
    assert json.loads(call.arguments) == {"command": "cat 47"}
    assert first.usage.input_tokens == len(engine.prompts[0])
    history = [{"role": "user", "content": "Start."}, *(item.model_dump() for item in first.output)]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "box 83"})
    last = await client.responses.create(model="main", input=history, tools=TOOLS, instructions="Be brief.")
    assert (last.status, last.output_text) == ("completed", "gold")
    sealed = session.seal()
    assert [[m.role for m in node.messages] for node in sealed.nodes] == [["system", "user"], ["tool"]]
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert sealed.divergences == ()
    assert len(trained(sealed)) == 1


async def test_openai_client_streams_reasoning_text_and_calls(scripted, family, trained):
    calls = tuple(ToolCall(id="", name="sh", arguments={"n": n}) for n in (1, 2))
    said = Message(role="assistant", content="Both.", reasoning="Two boxes.", tool_calls=calls)
    async with serving(scripted(said, "gold"), family) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=128))
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            async with client.responses.stream(**BODY, tools=TOOLS) as stream:
                kinds = [event.type async for event in stream]
                first = await stream.get_final_response()
            plain = await client.responses.create(**BODY, tools=TOOLS)
            assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
            assert [item.model_dump(exclude={"parsed_arguments", "content"}) for item in first.output] == [
                item.model_dump(exclude={"content"}) for item in plain.output
            ]
            assert (first.output_text, first.output[0].summary[0].text) == ("Both.", "Two boxes.")
            assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
            assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 4
            results = [
                {
                    "type": "function_call_output",
                    "call_id": item.call_id,
                    "output": [{"type": "input_text", "text": "o"}],
                }
                for item in plain.output[:1:-1]
            ]
            history = [{"role": "user", "content": "Start."}, *(item.model_dump() for item in plain.output), *results]
            last = await client.responses.create(model="main", input=history, tools=TOOLS)
        assert last.output_text == "gold"
        sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert (sealed.repeats, sealed.divergences) == (1, ())
    assert len(trained(sealed)) == 1


async def test_the_events_are_numbered_and_end_with_the_whole_response(http):
    reply = await http.post("/responses", json=BODY | {"stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    pairs = [event.split("\n") for event in reply.text.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [name for name, _ in pairs] == [f"event: {event['type']}" for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done
    assert events[0]["response"]["output"] == []


async def test_replies_one_after_another_stay_messages_of_their_own(http, session):
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    call = {"type": "function_call", "call_id": "c", "name": "sh", "arguments": '{"x":1}'}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "s"}]},
        thought,
        said,
        call,
        call | {"call_id": "d"},
        thought,
        call,
        said,
        said,
        {"role": "user", "content": "go"},
    ]
    assert (await http.post("/responses", json=BODY | {"input": items})).status_code == 200
    (node,) = session.seal().nodes
    assert [(m.role, m.reasoning, m.text, [c.id for c in m.tool_calls]) for m in node.messages] == [
        ("system", None, "s", []),
        ("assistant", "r", "a", ["c", "d"]),
        ("assistant", "r", "", ["c"]),
        ("assistant", None, "a", []),
        ("assistant", None, "a", []),
        ("user", None, "go", []),
    ]


async def test_a_budget_is_an_incomplete_response(gateway):
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=2), max_turns=1)
    async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id) as client:
        for seed in (0, 1):
            reply = await client.responses.create(**BODY, metadata={"seed": str(seed)})
            assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (reply.output_text, reply.usage.output_tokens) == ("", 0)


async def test_a_failure_of_a_stream_raises_in_the_client_before_and_after_the_first_byte(family):
    class Failing:
        async def generate(self, ids, sampling, *, routing_key):
            await asyncio.sleep(0.05)
            raise EngineError("gone")

    for ping_s in (5.0, 0.01):
        async with serving(Failing(), family, ping_s=ping_s) as gateway:
            session = gateway.open(policy="main", sampling=Sampling(max_tokens=64))
            async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
                if ping_s > 1:
                    with pytest.raises(openai.InternalServerError, match="gone"):
                        await client.responses.create(**BODY, stream=True)
                    continue
                stream = await client.responses.create(**BODY, stream=True)
                with pytest.raises(openai.APIError, match="gone"):
                    await anext(aiter(stream))


async def test_tools_that_are_no_functions_and_wishes_are_kept_in_the_record(http, session):
    web = {"type": "web_search"}
    body = BODY | {"tools": [*TOOLS, web], "store": False, "text": {"verbosity": "low"}, "include": ["x"]}
    assert (await http.post("/responses", json=body)).status_code == 200
    (node,) = session.seal().nodes
    assert [tool.name for tool in node.tools] == ["sh"]
    assert node.requested == {"tools": [web], "store": False, "text": {"verbosity": "low"}, "include": ["x"]}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user"}, {"type": "item_reference", "id": "fc_x_0"}]}, "input[1]"),
        ({"input": [{"type": "reasoning"}, {"type": "function_call", "call_id": "c"}]}, "input[1].name"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "rm"}, "tools": TOOLS}, "tool_choice"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "a", "arguments": "{"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
        ({"instructions": 3}, "instructions"),
        ({"tools": [3]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"stream": "yes"}, "stream"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ],
)
async def test_a_request_that_cannot_be_served_names_its_field(http, session, changes, param):
    reply = await http.post("/responses", json=BODY | changes)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert session.seal().nodes == ()


# ------------------------------------------------------------------------------------------ stored responses


async def test_a_conversation_goes_on_from_a_response_by_its_id(client, session, engine, trained):
    first = await client.responses.create(**BODY, tools=TOOLS, instructions="Be brief.")
    result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "box 83"}
    second = await client.responses.create(
        model="main", input=[result], previous_response_id=first.id, tools=TOOLS, instructions="Be brief."
    )
    async with client.responses.stream(
        model="main", input="Sure?", previous_response_id=second.id, tools=TOOLS, instructions="Be brief."
    ) as stream:
        third = await stream.get_final_response()
    assert (second.output_text, third.output_text) == ("gold", "again")
    again = await client.responses.create(  # a fork, without instructions: they are not carried over
        model="main", input=[result], previous_response_id=first.id, tools=TOOLS
    )
    assert again.output_text == "again"
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0, 1, None]
    assert [[m.role for m in node.messages] for node in sealed.nodes] == [
        ["system", "user"],
        ["tool"],
        ["user"],
        ["user", "assistant", "tool"],
    ]
    assert engine.prompts[3].tolist() != engine.prompts[1].tolist()
    assert len(trained(sealed)) == 2


async def test_items_of_a_response_may_be_named_instead_of_sent(scripted, family, trained):
    said = Message(
        role="assistant",
        content="Look.",
        reasoning="Hm.",
        tool_calls=tuple(ToolCall(id="", name="sh", arguments={"n": n}) for n in (1, 2)),
    )
    async with serving(scripted(said, "gold"), family) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=128))
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            first = await client.responses.create(**BODY, tools=TOOLS)
            history = [{"role": "user", "content": "Start."}]
            history += [{"type": "item_reference", "id": item.id} for item in first.output]
            history += [
                {"type": "function_call_output", "call_id": item.call_id, "output": "x"} for item in first.output[2:]
            ]
            assert (await client.responses.create(model="main", input=history, tools=TOOLS)).output_text == "gold"
            for id in ("fc_x_0", first.output[2].id + "9", "msg_", "", "fc_" + "9" * 5000):
                with pytest.raises(openai.BadRequestError):
                    await client.responses.create(model="main", input=[{"type": "item_reference", "id": id}])
        sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert sealed.divergences == ()
    assert len(trained(sealed)) == 1


async def test_a_response_that_is_not_stored_and_one_of_another_session_cannot_be_gone_on_from(gateway, client):
    kept = await client.responses.create(**BODY)
    dropped = await client.responses.create(**BODY, store=False)
    stranger = gateway.open(policy="main", sampling=Sampling(max_tokens=64))
    async with openai.AsyncOpenAI(base_url=stranger.base_url, api_key=stranger.id, max_retries=0) as other:
        for asking, response in ((client, dropped), (other, kept), (other, dropped)):
            with pytest.raises(openai.BadRequestError) as caught:
                await asking.responses.create(model="main", input="x", previous_response_id=response.id)
            assert caught.value.code == "previous_response_not_found"
        reference = {"type": "item_reference", "id": kept.output[0].id}
        with pytest.raises(openai.BadRequestError):
            await other.responses.create(model="main", input=[reference])
    assert stranger.seal().nodes == ()


class Gold(pydantic.BaseModel):
    amount: int


@pytest.mark.parametrize("form", ["ignore", "constrain"])
async def test_a_form_of_output_is_parsed_by_the_client(scripted, family, form):
    async with serving(scripted('{"amount":29}'), family) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(), record=RecordPolicy(output_form=form))
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            reply = await client.responses.parse(**BODY, text_format=Gold)
        (node,) = session.seal().nodes
    assert reply.output_parsed == Gold(amount=29)
    assert (node.sampling.json_schema is None) == (form == "ignore") == ("text.format" in node.requested)


async def test_calls_that_the_caller_forbids_are_withheld(client):
    reply = await client.responses.create(**BODY, tools=TOOLS, tool_choice="none")
    assert [item.type for item in reply.output] == ["message"]
    assert "withheld" in reply.parse_error


# ------------------------------------------------------------------------------------ recorded exchanges

RECORDED = ["codex-exec", "codex-exec-minimal", "langchain-responses", "openai-agents-responses"]
RECORDED.append("openai-python-responses")


def test_every_recorded_exchange_is_played():
    recorded = {path.stem for path in WIRE.glob("*.json") if '"/v1/responses"' in path.read_text("utf-8")}
    assert recorded == set(RECORDED)


def replies_of(pairs):
    for pair in pairs:
        items = pair["response_scripted"]["output"]
        texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
        thoughts = [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]]
        yield Message(
            role="assistant",
            content="".join(texts),
            reasoning="".join(thoughts) or None,
            tool_calls=tuple(
                ToolCall(id="", name=item["name"], arguments=json.loads(item["arguments"]))
                for item in items
                if item["type"] == "function_call"
            ),
        )


@pytest.mark.parametrize("name", RECORDED)
async def test_what_real_programs_sent_is_accepted_and_continues_its_path(name, scripted, family, trained, restored):
    pairs = json.loads((WIRE / f"{name}.json").read_text("utf-8"))["pairs"]
    pairs = [pair for pair in pairs if pair["request"]["path"] == "/v1/responses"]
    async with serving(scripted(*replies_of(pairs)), family) as gateway, httpx.AsyncClient() as http:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=512))
        for pair in pairs:
            body = restored(pair["request"]["body"])
            reply = await http.post(f"{session.path_url}/responses", json=body)
            assert reply.status_code == 200, reply.text
            assert not body.get("stream") or "response.completed" in reply.text
        sealed = session.seal()
    roots = [node.parent for node in sealed.nodes].count(None)
    assert roots == len(pairs) // 2
    assert Divergence.FOREIGN_REPLY not in {difference.kind for difference in sealed.divergences}
    assert len(trained(sealed)) == roots


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stored_response_is_got_as_it_went_out_and_deleted(gateway, session, client, stream):
    if stream:
        async with client.responses.stream(model="main", input="Start.", tools=[]) as events:
            first = await events.get_final_response()
    else:
        first = await client.responses.create(model="main", input="Start.")
    again = await client.responses.retrieve(first.id)
    assert again.model_dump(exclude={"output"}) == first.model_dump(exclude={"output"})
    assert [item.id for item in again.output] == [item.id for item in first.output]
    assert again.output_text == first.output_text
    other = gateway.open(policy="main", sampling=Sampling())
    with pytest.raises(openai.NotFoundError, match="no response that this session stored"):
        await client.with_options(api_key=other.id).responses.retrieve(first.id)
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="another").responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="include"):
        await client.responses.retrieve(first.id, include=["reasoning.encrypted_content"])
    await client.responses.delete(first.id)
    for gone in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as error:
            await gone(first.id)
        assert (error.value.code, error.value.param) == ("response_not_found", "response_id")
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        await client.responses.create(model="main", input="And?", previous_response_id=first.id)
    assert len(session.seal().nodes) == 1  # what is recorded stays


async def test_a_response_that_was_not_to_be_stored_is_not_there(client):
    reply = await client.responses.create(model="main", input="Start.", store=False)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(reply.id)
