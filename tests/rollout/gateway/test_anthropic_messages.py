import asyncio
import json
from pathlib import Path

import anthropic
import httpx
import pydantic
import pytest

from agar.errors import DeadlineError, EngineAborted, EngineError
from agar.ledger.config import RecordPolicy
from agar.ledger.node import Divergence
from agar.ledger.toy import ToyEngine
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall

WIRE = Path(__file__).parent / "wire"
TOOLS = [{"name": "sh", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}]
ASK = {"role": "user", "content": "Start."}
BODY = {"model": "main", "max_tokens": 64, "messages": [ASK]}


def client_of(session, **fields):
    url = session.base_url.removesuffix("/v1")
    return anthropic.AsyncAnthropic(base_url=url, auth_token=session.id, max_retries=0, **fields)


@pytest.fixture
async def client(session):
    async with client_of(session) as client:
        yield client


@pytest.fixture
async def http(gateway, session):
    headers = {"x-api-key": session.id, "anthropic-version": "2023-06-01"}
    async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers) as http:
        yield http


def serving(engine, family, **settings):
    return Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(**settings))


def opened(gateway, **fields):
    return gateway.open(policy="main", sampling=Sampling(max_tokens=512), **fields)


async def test_anthropic_client_plays_two_turns_with_a_tool(client, session, engine, trained):
    first = await client.messages.create(**BODY, tools=TOOLS, system="Be brief.")
    text, call = first.content
    assert (first.stop_reason, first.stop_sequence, first.role, first.model) == ("tool_use", None, "assistant", "main")
    assert (text.type, text.text) == ("text", "Look.")
    assert (call.type, call.id, call.name, call.input) == ("tool_use", "call_0_0", "sh", {"command": "cat 47"})
    assert first.usage.input_tokens == len(engine.prompts[0])
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "box 83"}]}
    history = [ASK, {"role": "assistant", "content": first.content}, result]
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    last = await client.messages.create(model="main", max_tokens=64, messages=history, tools=TOOLS, system=system)
    assert (last.stop_reason, last.content[0].text) == ("end_turn", "gold")
    sealed = session.seal()
    assert [[m.role for m in node.messages] for node in sealed.nodes] == [["system", "user"], ["tool"]]
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert sealed.nodes[0].tools[0].name == "sh"
    assert sealed.divergences == ()
    assert last.usage.output_tokens == len(sealed.nodes[1].sampled)
    assert len(trained(sealed)) == 1


async def test_anthropic_client_streams_thinking_text_and_calls(scripted, family, trained):
    calls = tuple(ToolCall(id="", name="sh", arguments={"b": 1, "a": [n]}) for n in (1, 2))
    said = Message(role="assistant", content="Both.", reasoning="Two boxes.", tool_calls=calls)
    async with serving(scripted(said, "gold"), family) as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            async with client.messages.stream(**BODY, tools=TOOLS) as stream:
                kinds = [event.type async for event in stream]
                first = await stream.get_final_message()
            assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
            assert (first.content[0].thinking, first.content[1].text) == ("Two boxes.", "Both.")
            assert [block.input for block in first.content[2:]] == [{"b": 1, "a": [1]}, {"b": 1, "a": [2]}]
            assert (first.stop_reason, first.usage.output_tokens > 0) == ("tool_use", True)
            assert (kinds[0], kinds[-1], kinds.count("content_block_stop")) == ("message_start", "message_stop", 4)
            results = [  # in the order of completion, which is another
                {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": block.id}]}
                for block in first.content[:1:-1]
            ]
            history = [ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
            async with client.messages.stream(model="m", max_tokens=64, messages=history, tools=TOOLS) as stream:
                assert await stream.get_final_text() == "gold"
                last = await stream.get_final_message()
        assert (last.stop_reason, last.model) == ("end_turn", "m")
        sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert sealed.divergences == ()
    assert len(trained(sealed)) == 1


async def test_the_events_of_a_stream_are_those_of_the_dialect(http):
    reply = await http.post("/messages", json=BODY | {"stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = []
    for event in reply.text.strip().split("\n\n"):
        name, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in events[1:7]] == [0, 0, 0, 1, 1, 1]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None
    assert events[4]["content_block"] == {"type": "tool_use", "id": "call_0_0", "name": "sh", "input": {}}
    assert json.loads(events[5]["delta"]["partial_json"]) == {"command": "cat 47"}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


async def test_a_lost_stream_asked_again_without_one_gets_the_same_message(http, session, engine):
    body = BODY | {"tools": TOOLS}
    streamed = (await http.post("/messages", json=body | {"stream": True})).text
    plain = (await http.post("/messages", json=body)).json()
    assert plain["id"] in streamed
    assert (len(engine.prompts), session.seal().repeats) == (1, 1)


async def test_a_waiting_stream_is_pinged_and_ends_with_its_caller(stalling, family):
    async with serving(stalling, family, ping_s=0.01) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        async with http.stream("POST", f"{session.path_url}/messages", json=BODY | {"stream": True}) as reply:
            assert (await anext(reply.aiter_text())).startswith("event: ping\ndata: ")
        async with asyncio.timeout(5):
            while not stalling.given_up:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        stalling.go.set()
        async with client_of(session) as client, client.messages.stream(**BODY) as stream:
            assert (await stream.get_final_message()).stop_reason == "tool_use"
    assert len(session.seal().nodes) == 1


async def test_a_failure_in_a_stream_is_an_error_event(family):
    class Failing:
        async def generate(self, ids, sampling, *, routing_key):
            await asyncio.sleep(0.05)
            raise EngineError("gone")

    async with serving(Failing(), family, ping_s=0.01) as gateway, client_of(opened(gateway)) as client:
        stream = await client.messages.create(**BODY, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="gone"):
            async for _ in stream:
                pass


async def test_a_program_that_reads_the_environment_finds_the_gateway(session, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in session.env().items():
        monkeypatch.setenv(name, value)
    async with anthropic.AsyncAnthropic(max_retries=0) as client:
        assert (await client.messages.create(**BODY)).content[0].text == "Look."
        assert [model.id async for model in client.models.list()] == ["main"]
    assert len(session.seal().nodes) == 1


async def test_a_key_may_come_as_x_api_key_and_must_be_open(gateway, session):
    url = gateway.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key=session.id, max_retries=0) as client:
        assert (await client.messages.create(**BODY)).stop_reason == "tool_use"
    async with httpx.AsyncClient() as http:
        for headers in ({}, {"x-api-key": "guess"}):
            for path in ("messages", "messages/count_tokens"):
                reply = await http.post(f"{gateway.base_url}/{path}", json=BODY, headers=headers)
                assert reply.status_code == 401
                assert reply.json()["error"]["type"] == "authentication_error"
    session.seal()
    async with anthropic.AsyncAnthropic(base_url=url, api_key=session.id, max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="no open session"):
            await client.messages.create(**BODY)


async def test_counting_tokens_tells_the_length_of_the_prompt_and_is_not_recorded(client, session, engine):
    counted = await client.messages.count_tokens(model="main", messages=[ASK], tools=TOOLS, system="Be brief.")
    first = await client.messages.create(**BODY, tools=TOOLS, system="Be brief.")
    assert counted.input_tokens == first.usage.input_tokens == len(engine.prompts[0])
    history = [ASK, {"role": "assistant", "content": first.content}]
    longer = await client.messages.count_tokens(model="main", messages=history, tools=TOOLS, system="Be brief.")
    assert longer.input_tokens > counted.input_tokens + first.usage.output_tokens
    sealed = session.seal()
    assert (len(sealed.nodes), sealed.divergences) == (1, ())
    with pytest.raises(anthropic.AuthenticationError):
        await client.messages.count_tokens(model="main", messages=[ASK])


async def test_a_tool_runner_that_sends_only_what_is_new_makes_one_path(gateway, session, trained):
    @anthropic.beta_async_tool
    async def sh(command: str) -> str:
        """Run."""
        return f"ran {command}"

    async with client_of(session) as client:
        runner = client.beta.messages.tool_runner(**BODY, tools=[sh], system="Be brief.")
        texts = [block.text async for message in runner for block in message.content if block.type == "text"]
    assert texts == ["Look.", "gold"]
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert [message.text for message in sealed.nodes[1].messages] == ["ran cat 47"]
    assert len(trained(sealed)) == 1


async def test_a_synchronous_tool_runner_makes_one_path_too(gateway, session, trained):
    @anthropic.beta_tool
    def sh(command: str) -> str:
        """Run."""
        return f"ran {command}"

    def play() -> str:
        url = session.base_url.removesuffix("/v1")
        with anthropic.Anthropic(base_url=url, auth_token=session.id, max_retries=0) as client:
            return client.beta.messages.tool_runner(**BODY, tools=[sh]).until_done().content[0].text

    assert await asyncio.to_thread(play) == "gold"
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert len(trained(sealed)) == 1


async def test_a_thread_that_is_not_known_is_refused_in_the_way_clients_recover_from(http):
    thread = {"type": "continue", "previous_message_id": "msg_other"}
    error = (await http.post("/messages", json=BODY | {"thread": thread})).json()["error"]
    assert error["details"] == {"error_code": "thread_not_found"}


async def test_wishes_and_unknown_fields_are_kept_in_the_record(http, session):
    web = {"type": "web_search_20250305", "name": "web_search"}
    wishes = {"temperature": 0.2, "thinking": {"type": "adaptive"}, "novel": [1]}
    body = BODY | wishes | {"model": "claude", "tools": [*TOOLS, web], "max_tokens": 32000}
    assert (await http.post("/messages", json=body)).json()["model"] == "claude"
    (node,) = session.seal().nodes
    assert node.requested == wishes | {"max_tokens": 32000, "tools": [web], "model": "claude"}
    assert [tool.name for tool in node.tools] == ["sh"]
    assert (node.sampling.temperature, node.sampling.max_tokens) == (1.0, 64)


async def test_a_stop_sequence_ends_a_message_and_is_named(scripted, family, trained):
    async with serving(scripted("I look. STOP gold", "end"), family) as gateway:
        session = opened(gateway)
        async with client_of(session) as client:
            first = await client.messages.create(**BODY, stop_sequences=["x", "STOP"])
            async with client.messages.stream(**BODY, stop_sequences=["x", "STOP"]) as stream:
                streamed = await stream.get_final_message()
            history = [ASK, {"role": "assistant", "content": first.content}, ASK]
            await client.messages.create(model="main", max_tokens=64, messages=history)
        sealed = session.seal()
    for message in (first, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")
        assert message.content[0].text == "I look. "
    assert sealed.nodes[0].sampling.stop == ("x", "STOP")
    assert ([node.parent for node in sealed.nodes], sealed.divergences) == ([None, 0], ())
    assert len(trained(sealed)) == 1


async def test_calls_that_the_caller_forbids_are_withheld(client, session):
    none = await client.messages.create(**BODY, tools=TOOLS, tool_choice={"type": "none"})
    assert ([block.type for block in none.content], none.stop_reason) == (["text"], "end_turn")
    assert "withheld" in none.parse_error
    wish = {"type": "auto", "disable_parallel_tool_use": True}
    await client.messages.create(**BODY, tools=TOOLS, tool_choice=wish)
    assert session.seal().nodes[1].requested == {"tool_choice": wish}


@pytest.mark.parametrize("form", ["ignore", "constrain"])
async def test_a_form_of_output_is_parsed_by_the_client(scripted, family, form):
    class Gold(pydantic.BaseModel):
        amount: int

    async with serving(scripted('{"amount":29}'), family) as gateway:
        session = opened(gateway, record=RecordPolicy(output_form=form))
        async with client_of(session) as client:
            message = await client.messages.parse(**BODY, output_format=Gold)
        (node,) = session.seal().nodes
    assert message.parsed_output == Gold(amount=29)
    assert (node.sampling.json_schema is None) == (form == "ignore") == ("output_config.format" in node.requested)


async def test_fields_that_no_model_names_are_kept_wherever_they_stand(http, session):
    block = {"type": "text", "text": "a", "mood": "calm", "cache_control": {"type": "ephemeral"}}
    body = BODY | {"messages": [ASK | {"name": "bob"}], "system": [block], "tools": [TOOLS[0] | {"cost": 3}]}
    assert (await http.post("/messages", json=body | {"output_config": {"effort": "low"}})).status_code == 200
    assert session.seal().nodes[0].requested == {
        "messages[0]": {"name": "bob"},
        "system": {"[0].mood": "calm"},
        "tools[0]": {"cost": 3},
        "output_config": {"effort": "low"},
    }


async def test_blocks_become_messages_in_their_order(http, session):
    content = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "and"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}},
        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_reference", "tool_name": "sh"}]},
    ]
    rows = [
        ASK,
        {"role": "system", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "t"}]},
        {"role": "user", "content": content},
    ]
    assert (await http.post("/messages", json=BODY | {"messages": rows})).status_code == 200
    (node,) = session.seal().nodes
    assert [(m.role, m.text, m.tool_call_id) for m in node.messages] == [
        ("user", "Start.", None),
        ("system", "one\ntwo", None),
        ("assistant", "t", None),
        ("tool", "1", "a"),
        ("tool", "", "b"),
        ("user", "and\na page", None),
        ("tool", "sh", "c"),
    ]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0]: input should be an object, got 'hi'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}]}, "tool_use"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, ASK]}, "content[0].name"),
        ({"tool_choice": {"type": "tool", "name": "rm"}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "video"),
        ({"messages": [ASK, {"role": "assistant", "content": "I"}]}, "must not end with an assistant"),
        ({"system": 3}, "system"),
        ({"tools": [3]}, "tools"),
        ({"tools": [{"input_schema": {}}]}, "tools[0]"),
        ({"tools": [{"name": "a", "input_schema": 3}]}, "tools[0].input_schema"),
        ({"stream": 1}, "stream"),
        ({"thread": "x"}, "thread"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ],
)
async def test_a_request_that_cannot_be_served_is_an_error_of_the_dialect(http, session, changes, named):
    reply = await http.post("/messages", json=BODY | changes)
    assert reply.status_code == 400
    body = reply.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert named in body["error"]["message"]
    assert session.seal().nodes == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"messages":' * 300, b"[" * 9999], ids=range(5))
async def test_garbage_is_an_error_of_the_dialect(http, content):
    for path in ("/messages", "/messages/count_tokens"):
        reply = await http.post(path, content=content)
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_deep_arguments_and_schemas_are_refused(http):
    deep: dict = {}
    for _ in range(200):
        deep = {"a": deep}
    call = {"type": "tool_use", "id": "c", "name": "sh", "input": deep}
    for changes in (
        {"tools": [{"name": "sh", "input_schema": deep}]},
        {"messages": [ASK, {"role": "assistant", "content": [call]}, ASK]},
    ):
        assert (await http.post("/messages", json=BODY | changes)).status_code == 400


async def test_an_image_is_refused_by_a_text_family(http):
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    message = {"role": "user", "content": [{"type": "image", "source": source}]}
    reply = await http.post("/messages", json=BODY | {"messages": [message]})
    assert (reply.status_code, "image" in reply.json()["error"]["message"]) == (400, True)


async def test_an_unknown_path_is_an_error_of_the_dialect(http):
    reply = await http.get("/messages/batches")
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (EngineError("x"), 502, "api_error"),
        (EngineAborted("x"), 503, "overloaded_error"),
        (DeadlineError("x"), 504, "timeout_error"),
        (RuntimeError("secret"), 500, "api_error"),
    ],
)
async def test_engine_failures_have_a_status_and_a_type(family, error, status, kind):
    class Failing:
        async def generate(self, ids, sampling, *, routing_key):
            raise error

    async with serving(Failing(), family) as gateway, httpx.AsyncClient() as http:
        for stream in (False, True):
            reply = await http.post(f"{opened(gateway).path_url}/messages", json=BODY | {"stream": stream})
            assert (reply.status_code, reply.json()["error"]["type"]) == (status, kind)
            assert "secret" not in reply.text


async def test_a_cut_reply_and_a_budget_stop_with_max_tokens(gateway):
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=2), max_turns=1)
    async with client_of(session) as client:
        cut = await client.messages.create(**BODY)
        stopped = await client.messages.create(
            model="main", max_tokens=64, messages=[ASK, {"role": "assistant", "content": cut.content}, ASK]
        )
        async with client.messages.stream(**BODY, metadata={"user_id": "x"}) as stream:
            streamed = await stream.get_final_message()
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    for message in (stopped, streamed):
        assert (message.stop_reason, message.content[0].text, message.usage.output_tokens) == ("max_tokens", "", 0)


# ------------------------------------------------------------------------------------ recorded exchanges


def replies_of(pairs):
    for pair in pairs:
        blocks = pair["response_scripted"]["content"]
        yield Message(
            role="assistant",
            content="".join(block["text"] for block in blocks if block["type"] == "text"),
            reasoning=next((block["thinking"] for block in blocks if block["type"] == "thinking"), None),
            tool_calls=tuple(
                ToolCall(id="", name=block["name"], arguments=block["input"])
                for block in blocks
                if block["type"] == "tool_use"
            ),
        )


BOTH = [None, 0]
PARENTS = {
    "anthropic-python": [None, 0, None],
    "anthropic-python-parse": [None],
    "anthropic-python-tool_runner-threads": BOTH,
    "claude-code-bare": BOTH,
    "claude-code-minimal": BOTH,
    "claude-code-p": BOTH,
    "claude-code-subagents": [None, 0, None, None],
}


def test_every_recorded_exchange_is_played():
    recorded = {path.stem for path in WIRE.glob("*.json") if '"/v1/messages"' in path.read_text("utf-8")}
    assert recorded == set(PARENTS)


@pytest.mark.parametrize("name", PARENTS)
async def test_what_real_programs_sent_is_accepted_and_continues_its_path(name, scripted, family, trained, restored):
    pairs = json.loads((WIRE / f"{name}.json").read_text("utf-8"))["pairs"]
    async with serving(scripted(*replies_of(pairs)), family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway, record=RecordPolicy(output_form="ignore"))
        sent = None
        for pair in pairs:
            request = pair["request"]
            assert request["path"] == "/v1/messages"
            body = restored(request["body"])
            if "previous_message_id" in body.get("thread", {}):
                body["thread"]["previous_message_id"] = sent
            headers = {
                key: session.id if key == "x-api-key" else f"Bearer {session.id}"
                for key in request["headers"]
                if key.lower() in ("x-api-key", "authorization")
            }
            query = f"?{request['query']}" if request["query"] else ""
            reply = await http.post(f"{gateway.base_url}/messages{query}", json=body, headers=headers)
            assert reply.status_code == 200, reply.text
            if body.get("stream"):
                assert reply.text.rstrip().endswith('data: {"type":"message_stop"}')
            else:
                sent = reply.json()["id"]
        sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == PARENTS[name]
    kinds = {difference.kind for difference in sealed.divergences}
    # Its last request tells, in a history of its own, what was sampled: known by more than the white space at its end.
    assert (Divergence.RENDERED_AGAIN in kinds) == (name == "claude-code-subagents")
    assert Divergence.FOREIGN_REPLY not in kinds
    assert len(trained(sealed)) == PARENTS[name].count(None)


async def test_a_number_that_no_client_could_read_back_is_no_call(family):
    """Python reads it, a 64-bit reader does not: the call stays text, the reply still comes, in every dialect."""
    text = '<tool_call>\n{"name":"sh","arguments":{"a":123456789012345678901234567890}}\n</tool_call>'
    ids = family.tokenizer.encode(f"{text}<|im_end|>", special=True)
    async with serving(ToyEngine(lambda prompt: ids), family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        reply = await http.post(f"{session.path_url}/messages", json=BODY)
        assert (reply.status_code, reply.json()["content"]) == (200, [{"type": "text", "text": text}])
        assert "beyond 64 bits" in reply.json()["parse_error"]
        history = [ASK, {"role": "assistant", "content": text}, ASK]
        assert (await http.post(f"{session.path_url}/messages", json=BODY | {"messages": history})).status_code == 200
    assert [node.parent for node in session.seal().nodes] == [None, 0]
