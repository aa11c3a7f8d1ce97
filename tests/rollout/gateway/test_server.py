import asyncio
import json
import signal

import httpx
import openai
import pytest

from agar.errors import ConfigError
from agar.ledger.node import Divergence
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Sampling

TOOLS = [
    {
        "type": "function",
        "function": {"name": "sh", "description": "Run.", "parameters": {"type": "object", "properties": {}}},
    }
]
ASK = {"role": "user", "content": "Start."}


async def test_openai_client_plays_two_turns_with_a_tool(client, session, engine):
    reply = await client.chat.completions.create(model="main", messages=[ASK], tools=TOOLS, tool_choice="auto")
    choice = reply.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Look.")
    call = choice.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("sh", {"command": "cat 47"})
    assert reply.usage.prompt_tokens == len(engine.prompts[0])
    assert reply.usage.completion_tokens == reply.usage.total_tokens - reply.usage.prompt_tokens
    history = [ASK, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "box 83"}]
    last = await client.chat.completions.create(model="main", messages=history, tools=TOOLS)
    assert (last.choices[0].finish_reason, last.choices[0].message.content) == ("stop", "gold")
    sealed = session.seal()
    assert [(node.parent, len(node.messages)) for node in sealed.nodes] == [(None, 1), (0, 1)]
    assert sealed.divergences == ()
    assert sealed.nodes[0].requested == {"tool_choice": "auto"}


async def test_respelt_arguments_and_content_lists_continue_the_path(http, session):
    first = (await http.post("/chat/completions", json={"messages": [ASK], "tools": TOOLS})).json()
    message = first["choices"][0]["message"]
    message["tool_calls"][0]["function"]["arguments"] = '{ "command" :  "cat \\u0034\\u0037" }'
    message["content"] = [{"type": "text", "text": "Look."}]
    ask = {"role": "user", "content": [{"type": "text", "text": "Start."}]}
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "box 83"}
    await http.post("/chat/completions", json={"messages": [ask, message, result], "tools": TOOLS})
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert [d.kind for d in sealed.divergences] == [Divergence.ARGUMENTS_RESPELLED]


async def test_an_identical_body_is_answered_with_the_same_bytes(http, session, engine):
    body = {"messages": [ASK], "tools": TOOLS}
    replies = await asyncio.gather(*(http.post("/chat/completions", json=body) for _ in range(3)))
    assert len({reply.content for reply in replies}) == 1
    assert len(engine.prompts) == 1


async def test_the_session_in_the_path_needs_no_key(gateway, session):
    async with httpx.AsyncClient() as http:
        reply = await http.post(f"{session.path_url}/chat/completions", json={"messages": [ASK]})
        assert reply.status_code == 200
        models = (await http.get(f"{session.path_url}/models")).json()
    assert [row["id"] for row in models["data"]] == ["main"]
    assert len(session.seal().nodes) == 1


async def test_models_through_the_openai_client(client):
    assert [model.id async for model in client.models.list()] == ["main"]


async def test_a_key_opens_its_own_session_only_and_dies_with_it(gateway, client, session):
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="guess", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError, match="no open session"):
            await stranger.chat.completions.create(model="main", messages=[ASK])
    session.seal()
    with pytest.raises(openai.AuthenticationError):
        await client.chat.completions.create(model="main", messages=[ASK])
    assert gateway.open_sessions == 0
    async with httpx.AsyncClient() as http:
        for headers in ({}, {"authorization": session.id}, {"authorization": "Bearer x"}):
            reply = await http.post(f"{gateway.base_url}/chat/completions", json={"messages": [ASK]}, headers=headers)
            assert reply.status_code == 401


async def test_a_budget_answers_with_a_well_formed_length_stop(gateway):
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=64), max_turns=1)
    async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id) as client:
        first = await client.chat.completions.create(model="main", messages=[ASK])
        history = [ASK, {"role": "assistant", "content": first.choices[0].message.content}, ASK]
        reply = await client.chat.completions.create(model="main", messages=history)
    assert (reply.choices[0].finish_reason, reply.choices[0].message.content) == ("length", "")
    assert reply.usage.completion_tokens == 0


NAMED = {"type": "function", "function": {"name": "rm"}}
DEEP: dict = {}
for _ in range(200):
    DEEP = {"a": DEEP}
CALL = {"id": "c", "type": "function", "function": {"name": "sh", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [ASK], "stream": "yes"}, "stream"),
        ({"messages": [ASK], "stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"messages": [ASK], "stream": True, "stream_options": []}, "stream_options"),
        ({"messages": [ASK], "n": 0}, "n"),
        ({"messages": [ASK], "n": 65}, "n"),
        ({"messages": [ASK], "functions": []}, "functions"),
        ({"messages": [ASK], "logprobs": True, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": [ASK], "stop": ["a", ""]}, "stop[1]"),
        ({"messages": [ASK], "tool_choice": "required"}, "tool_choice"),
        ({"messages": [ASK], "tools": TOOLS, "tool_choice": NAMED}, "tool_choice"),
        ({"messages": [ASK], "tool_choice": "some"}, "tool_choice"),
        ({"messages": [ASK], "temperature": "hot"}, "temperature"),
        ({"messages": [ASK], "metadata": DEEP}, "metadata"),
        ({"messages": [ASK], "metadata": DEEP, "stream": True}, "metadata"),
        ({"messages": [ASK | {"unheard": DEEP}]}, "messages[0]"),
        ({"messages": [ASK], "response_format": {"type": "json_object"}}, "response_format"),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": [], "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CALL | {"function": {"name": "s", "arguments": "{"}}]}]},
            "messages[0].tool_calls",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [CALL | {"function": {"name": "s", "arguments": '{"a":"\\ud800"}'}}],
                    }
                ]
            },
            "messages[0].tool_calls",
        ),
        ({"messages": [ASK], "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"messages": [ASK], "tools": {"sh": 1}}, "tools"),
    ],
)
async def test_a_request_that_cannot_be_served_names_its_field(http, session, body, param):
    reply = await http.post("/chat/completions", json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]
    assert session.seal().nodes == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": NaN}', b'{"a":' * 3000, b"[" * 100_000],
    ids=range(8),
)
async def test_garbage_is_a_400_and_the_server_lives(http, content):
    reply = await http.post("/chat/completions", content=content)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert (await http.post("/chat/completions", json={"messages": [ASK]})).status_code == 200


async def test_deeply_nested_tool_schemas_and_arguments_do_not_crash_it(http):
    deep: dict = {}
    for _ in range(500):
        deep = {"a": deep}
    tool = {"type": "function", "function": {"name": "sh", "parameters": deep}}
    arguments = "{" + '"a":{' * 400 + "}" * 401
    call = CALL | {"function": {"name": "sh", "arguments": arguments}}
    for body in (
        {"messages": [ASK], "tools": [tool]},
        {"messages": [ASK, {"role": "assistant", "tool_calls": [call]}, ASK]},
    ):
        assert (await http.post("/chat/completions", json=body)).status_code == 400
    assert (await http.post("/chat/completions", json={"messages": [ASK]})).status_code == 200


async def test_an_image_is_refused_by_a_text_family(http):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    reply = await http.post("/chat/completions", json={"messages": [{"role": "user", "content": [part]}]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "cannot_record")


async def test_unknown_fields_are_kept_in_the_record_and_have_no_effect(http, session):
    reply = await http.post("/chat/completions", json={"messages": [ASK], "temperature": 0.2, "seed": 3, "wish": [1]})
    assert reply.status_code == 200
    (node,) = session.seal().nodes
    assert node.requested == {"temperature": 0.2, "seed": 3, "wish": [1]}
    assert (node.sampling.temperature, node.sampling.seed) == (1.0, None)


async def test_an_unknown_path_is_a_404_that_does_not_repeat_the_key(gateway, session):
    async with httpx.AsyncClient() as http:
        reply = await http.get(f"{session.path_url}/embeddings")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert session.id not in reply.text
        assert (await http.get(f"{session.path_url}/chat/completions")).status_code == 405


async def test_a_body_beyond_the_limit_is_a_413(family, engine):
    config = GatewayConfig(body_bytes=2048)
    async with Gateway(engines={"main": engine}, families={"main": family}, config=config) as gateway:
        session = gateway.open(policy="main", sampling=Sampling())
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {session.id}"}) as http:
            url = f"{gateway.base_url}/chat/completions"
            long = json.dumps({"messages": [{"role": "user", "content": "x" * 4096}]}).encode()

            async def pieces():
                yield long

            for content in (long, pieces()):
                assert (await http.post(url, content=content)).status_code == 413


async def test_engine_failures_have_the_status_that_clients_retry_on(family):
    from agar.errors import DeadlineError, EngineAborted, EngineError, EngineRefused

    class Failing:
        error: Exception

        async def generate(self, ids, sampling, *, routing_key):
            raise self.error

    engine = Failing()
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling())
        async with httpx.AsyncClient() as http:
            for error, status in (
                (EngineError("x"), 502),
                (EngineRefused("x"), 400),
                (EngineAborted("x"), 503),
                (DeadlineError("x"), 504),
                (RuntimeError("secret detail"), 500),
            ):
                engine.error = error
                reply = await http.post(f"{session.path_url}/chat/completions", json={"messages": [ASK]})
                assert reply.status_code == status
                assert reply.json()["error"]["type"] == ("server_error" if status >= 500 else "invalid_request_error")
                assert "secret detail" not in reply.text


async def test_closing_seals_open_sessions_and_frees_the_port(family, engine):
    before = signal.getsignal(signal.SIGINT)
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        assert signal.getsignal(signal.SIGINT) is before
        session = gateway.open(policy="main", sampling=Sampling())
        port = int(gateway.base_url.split(":")[2].split("/")[0])
    assert gateway.open_sessions == 0
    assert session.seal().nodes == ()
    with pytest.raises(OSError):  # noqa: PT011 (which one depends on the kernel)
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_in_use_is_a_config_error(gateway, family, engine):
    port = int(gateway.base_url.split(":")[2].split("/")[0])
    other = Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(port=port))
    with pytest.raises(ConfigError, match=str(port)):
        async with other:
            pass


async def test_engines_and_families_must_name_the_same_policies(family, engine):
    with pytest.raises(ConfigError, match="same policies"):
        Gateway(engines={"main": engine}, families={"other": family})
