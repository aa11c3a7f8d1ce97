"""ChatAgent: the same episode over HTTP and directly, and whose fault a failed call is."""

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from agar.agents.chat import ChatAgent
from agar.agents.config import ChatConfig
from agar.envs.base import Env
from agar.envs.runner import as_async
from agar.errors import ConfigError, DeadlineError, EngineAborted, EngineError, LedgerError, SessionClosedError
from agar.types import Finish, Message, TaskRow, ToolCall, ToolSpec, Turn

TASK = TaskRow(key="t", payload={"seed": 5})
TOOL = ToolSpec(name="look", description="Look.")


class Echo(Env):
    """Answers with what it got; over at the third turn."""

    @property
    def tools(self):
        return (TOOL,)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.task, self.seen = seed, options["task"], []
        return [Message(role="system", content="Echo."), Message(role="user", content="Go.")], {}

    def step(self, action):
        self.seen.append(action)
        tools = [Message(role="tool", content="seen", tool_call_id=call.id) for call in action.tool_calls]
        return tools or f"you said {action.text}", 0.0, len(self.seen) == 3, False, {}


@dataclass
class Session:
    """A session whose gateway is the test's own server."""

    base_url: str = "http://127.0.0.1:9/v1"
    id: str = "key-1"
    turns: list[Turn] = field(default_factory=list)
    asked: list[tuple[list[Message], tuple[ToolSpec, ...]]] = field(default_factory=list)

    async def chat(self, messages, *, tools=()):
        self.asked.append((list(messages), tuple(tools)))
        return self.turns[len(self.asked) - 1]

    def env(self):
        return {}


SCRIPT = [
    Turn(text="hm", reasoning="let me see"),
    Turn(tool_calls=(ToolCall(id="c1", name="look", arguments={"at": "é"}),)),
    Turn(text="done"),
]


def completion(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.parse_error:
        message["parse_error"] = turn.parse_error
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in turn.tool_calls
        ]
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": turn.finish.value}],
    }


@pytest.fixture
async def server():
    """Replies in order (a status and a body each, the last one for ever); keeps what was asked."""
    replies: list[tuple[int, Any]] = []
    requests: list[tuple[str, dict[str, Any]]] = []

    async def answer(request):
        requests.append((request.headers["Authorization"], await request.json()))
        status, body = replies[min(len(requests), len(replies)) - 1]
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield replies, requests, f"http://127.0.0.1:{port}/v1"
    await runner.cleanup()


async def play(agent: ChatAgent, session: Session) -> Echo:
    env = Echo()
    async with agent, as_async(env) as runner:
        await agent.play(runner, TASK, session)
    return env


async def test_directly_it_asks_the_session_with_the_growing_conversation_and_the_tools():
    session = Session(turns=SCRIPT)
    env = await play(ChatAgent(transport="direct"), session)
    assert env.seen == SCRIPT
    assert (env.seed, env.task) == (5, TASK)
    assert [len(messages) for messages, _ in session.asked] == [2, 4, 6]
    assert session.asked[2][0][2:] == [
        SCRIPT[0].message(),
        Message(role="user", content="you said hm"),
        SCRIPT[1].message(),
        Message(role="tool", content="seen", tool_call_id="c1"),
    ]
    assert all(tools == (TOOL,) for _, tools in session.asked)


async def test_over_http_the_environment_sees_the_same_turns(server):
    replies, requests, url = server
    replies += [(200, completion(turn)) for turn in SCRIPT]
    env = await play(ChatAgent(), Session(base_url=url))
    assert env.seen == SCRIPT
    assert {key for key, _ in requests} == {"Bearer key-1"}
    body = requests[2][1]
    assert body["messages"][2:] == [
        {"role": "assistant", "content": "hm", "reasoning_content": "let me see"},
        {"role": "user", "content": "you said hm"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"é"}'}}],
        },
        {"role": "tool", "content": "seen", "tool_call_id": "c1"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
        }
    ]
    assert set(body) == {"model", "messages", "tools"}  # sampling is the session's, so nothing is asked for


async def test_one_agent_serves_sessions_with_keys_of_their_own(server):
    replies, requests, url = server
    replies += [(200, completion(Turn(text="a")))]
    async with ChatAgent() as agent:
        for key in ("one", "two"):
            async with as_async(Echo()) as env:
                await agent.play(env, TASK, Session(base_url=url, id=key))
    assert [key for key, _ in requests] == ["Bearer one"] * 3 + ["Bearer two"] * 3


@pytest.mark.parametrize(
    ("status", "code", "error", "calls"),
    [
        (401, "session_sealed", SessionClosedError, 1),
        (400, "cannot_record", LedgerError, 1),
        (400, "invalid_value", EngineError, 1),
        (502, "engine_error", EngineError, 2),
        (503, "engine_aborted", EngineAborted, 2),
        (504, "deadline", DeadlineError, 2),
    ],
)
async def test_a_failed_call_is_attributed_and_only_5xx_is_repeated_once(server, status, code, error, calls):
    replies, requests, url = server
    replies += [(status, {"error": {"message": "no", "type": "x", "param": None, "code": code}})]
    with pytest.raises(error, match=str(status)) as caught:
        await play(ChatAgent(), Session(base_url=url))
    assert type(caught.value) is error
    assert len(requests) == calls
    assert all(body == requests[0][1] for _, body in requests)


async def test_a_gateway_that_is_not_there_is_an_engine_error():
    with pytest.raises(EngineError, match="cannot be reached"):
        await play(ChatAgent(max_retries=0), Session())


async def test_a_gateway_that_says_nothing_hits_the_deadline():
    async def silent(reader, writer):
        try:
            await reader.read()  # until the client gives up
        finally:
            writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        session = Session(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        with pytest.raises(DeadlineError, match=r"no reply to a model call within 0\.2 s"):
            await play(ChatAgent(timeout_s=0.2, max_retries=0), session)


async def test_a_machines_proxy_is_not_used(server, monkeypatch):
    replies, _, url = server
    replies += [(200, completion(Turn(text="a")))]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert len((await play(ChatAgent(), Session(base_url=url))).seen) == 3


@pytest.mark.parametrize("arguments", ["{", "[1]", '"text"'])
async def test_arguments_that_are_no_object_become_a_parse_error(server, arguments):
    replies, _, url = server
    body = completion(SCRIPT[1])
    body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    replies += [(200, body)]
    env = await play(ChatAgent(), Session(base_url=url))
    assert env.seen[0].tool_calls == ()
    assert "the arguments of look are not" in env.seen[0].parse_error


async def test_the_servers_parse_error_and_a_cut_end_arrive(server):
    replies, _, url = server
    turn = Turn(text="<tool_call>{", parse_error="not JSON", finish=Finish.LENGTH)
    replies += [(200, completion(turn))]
    assert (await play(ChatAgent(), Session(base_url=url))).seen[0] == turn


async def test_it_stops_where_the_model_has_no_room_left():
    env = await play(ChatAgent(transport="direct"), Session(turns=[SCRIPT[0], Turn(finish=Finish.LENGTH)]))
    assert env.seen == [SCRIPT[0]]


async def test_it_stops_at_its_own_turn_limit():
    env = await play(ChatAgent(transport="direct", max_turns=2), Session(turns=SCRIPT))
    assert env.seen == SCRIPT[:2]


@pytest.mark.parametrize("settings", [{"max_turns": 0}, {"transport": "pigeon"}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        ChatAgent(**settings)


def test_the_room_and_its_settings_load_no_openai():
    code = (
        "import sys, agar.agents, agar.agents.build, agar.agents.scripted, agar.agents.hunters;"
        "agar.agents.build_agent(agar.agents.ChatConfig(transport='direct'));"
        "print(sorted({'openai', 'torch', 'transformers', 'ray', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"


def test_the_defaults_are_http_with_one_repetition():
    assert ChatConfig().model_dump() == {
        "type": "chat",
        "transport": "http",
        "model": "agar",
        "max_turns": None,
        "timeout_s": 600.0,
        "max_retries": 1,
    }
