"""Tools from elsewhere in an environment: in-process, served, and failing."""

import asyncio
import contextlib

import pytest
from gymnasium.utils.env_checker import check_env

from agar.envs.runner import as_async
from agar.envs.tool_env import ToolEnv, tool
from agar.errors import ConfigError, ToolServerError
from agar.tool_servers.base import Session
from agar.tool_servers.config import ServerConfig, ServiceConfig
from agar.tool_servers.server import ToolServer
from agar.tool_servers.service import Service
from agar.types import Outcome, ToolCall, Turn


class Notes(Service[ServiceConfig]):
    """Keeps notes by episode."""

    settings = ServiceConfig

    def __init__(self):
        super().__init__(ServiceConfig())
        self.kept = {}

    async def forget(self, session: Session) -> None:
        self.kept.pop(session, None)

    @tool
    async def note(self, text: str, session: Session) -> list[str]:
        """Keep a note, and give all."""
        self.kept.setdefault(session, []).append(text)
        return self.kept[session]


class Desk(ToolEnv):
    """A tool of its own beside others."""

    @tool
    async def own(self) -> str:
        """Something of its own."""
        return "mine"

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        return "Go.", {}

    async def answer(self, action):
        return "", float(action.text == "right"), True, False, {}


def calls(*wanted):
    made = [ToolCall(id=str(n), name=name, arguments=arguments) for n, (name, arguments) in enumerate(wanted)]
    return Turn(text="", tool_calls=tuple(made))


async def test_a_services_tools_stand_beside_the_environments_own_and_are_let_go_with_the_episode():
    notes = Notes()
    async with as_async(Desk(toolboxes=[notes])) as runner:
        for _ in range(2):
            await runner.areset(seed=1)
            assert [spec.name for spec in runner.tools] == ["own", "note"]
            messages, *_ = await runner.astep(calls(("note", {"text": "a"}), ("own", {}), ("other", {})))
            said = [message.content for message in messages]
            assert said == ['["a"]', "mine", "error: no tool 'other'; there are: own, note"]
            _, reward, terminated, *_ = await runner.astep("right")
            assert (reward, terminated) == (1.0, True)
            assert notes.kept == {}


async def test_an_episode_that_is_left_is_let_go_by_the_next_and_by_the_end():
    notes = Notes()
    async with as_async(Desk(toolboxes=[notes])) as runner:
        for _ in range(2):
            await runner.areset()
            await runner.astep(calls(("note", {"text": "a"})))
            assert list(notes.kept.values()) == [["a"]]
    assert notes.kept == {}


async def test_a_served_tool_is_used_by_its_url(monkeypatch):
    notes = Notes()
    async with ToolServer(notes, ServerConfig(port=0)) as server:
        async with as_async(Desk(toolboxes=[server.url])) as runner:
            await runner.areset()
            messages, *_ = await runner.astep(calls(("note", {"text": "far"})))
            assert messages[0].content == '["far"]'
        assert notes.kept == {}


async def test_a_server_that_dies_excludes_the_episode_and_one_that_is_not_there_the_reset(monkeypatch):
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 0.2)
    async with ToolServer(Notes(), ServerConfig(port=0)) as server:
        runner = as_async(Desk(toolboxes=[server.url]))
        runner.env.tool_timeout_s = 0.2
        await runner.areset()
    _, reward, terminated, truncated, info = await runner.astep(calls(("note", {"text": "x"})))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["failure"] is Outcome.INFRA_ERROR
    assert server.url in info["failure_reason"]
    with pytest.raises(ToolServerError, match="no answer within"):
        await runner.areset()
    await runner.aclose()


async def test_two_tools_of_one_name_are_refused():
    for toolboxes in ([Notes(), Notes()], [Clash()]):
        async with as_async(Desk(toolboxes=toolboxes)) as runner:
            with pytest.raises(ConfigError, match="two tools are named"):
                await runner.areset()


class Clash(Notes):
    @tool
    async def own(self) -> str:
        """As the environment's."""
        return "not mine"


class Failing:
    """A toolbox that fails as told."""

    def __init__(self, error):
        self.error = error

    @contextlib.asynccontextmanager
    async def session(self):
        yield self
        raise RuntimeError("at the end")

    @property
    def specs(self):
        return Notes().specs

    async def call(self, name, arguments, *, timeout_s):
        await asyncio.sleep(0)
        raise self.error


async def test_a_session_that_ends_badly_is_logged_and_changes_nothing(caplog):
    async with as_async(Desk(toolboxes=[Failing(ToolServerError("gone"))])) as runner:
        await runner.areset()
        *_, info = await runner.astep(calls(("note", {"text": "x"}), ("own", {})))
        assert info["failure_reason"] == "gone"
    assert "did not end well: RuntimeError('at the end')" in caplog.text


def test_gymnasiums_checker_passes_and_the_synchronous_calls_work():
    env = Desk(toolboxes=[Notes()])
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    assert [spec.name for spec in env.action_space.tools] == ["own", "note"]
    env.close()
