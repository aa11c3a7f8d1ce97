"""@tool: the schema that the model sees, the check of what it sends, the call."""

import asyncio
import time
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from agar.errors import ConfigError, ToolError
from agar.tool_servers.base import Deadline, Session
from agar.tool_servers.tools import tool, tools_of


class Point(BaseModel):
    """A place."""

    x: int
    y: int = 0


class Garden:
    """Tools of many kinds."""

    @tool
    async def dig(
        self, depth: Annotated[int, Field(ge=1, le=9)], title: str = "hole", how: Literal["slow", "fast"] = "slow"
    ) -> str:
        """Dig a hole.

        And more, which the model does not see.

        Args:
            depth: how deep,
                in metres.
            title (str): what to call it.

        Returns:
            What was found.
        """
        return f"{title} {depth} {how}"

    @tool
    def walk(self, to: Point, stops: list[str] | None = None) -> dict[str, object]:
        """Walk somewhere."""
        return {"x": to.x + to.y, "stops": stops}

    @tool(name="rest", timeout_s=0.05)
    async def sleep_a_while(self) -> str:
        await asyncio.sleep(60)
        return ""

    @tool(timeout_s=0.05)
    def block(self) -> str:
        time.sleep(0.3)
        return ""

    @tool
    async def fail(self, how: str) -> str:
        raise {"told": ToolError("the spade broke"), "own": KeyError("bug"), "late": TimeoutError("mine")}[how]

    @tool
    def odd_names(self, json: str, model_config: int = 1, _x: bool = False) -> str:
        return f"{json} {model_config} {_x}"

    def not_a_tool(self) -> str:
        return ""


TOOLS = tools_of(Garden)


async def call(name, **arguments):
    return await TOOLS[name].call(Garden(), arguments, timeout_s=5)


def test_marked_methods_are_tools_in_the_order_of_definition():
    assert list(TOOLS) == ["dig", "walk", "rest", "block", "fail", "odd_names"]


def test_the_schema_says_what_hints_and_docstring_say_and_nothing_else():
    spec = TOOLS["dig"].spec
    assert (spec.name, spec.description) == ("dig", "Dig a hole.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "depth": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how deep, in metres."},
            "title": {"type": "string", "default": "hole", "description": "what to call it."},
            "how": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
        },
        "required": ["depth"],
    }
    assert TOOLS["rest"].spec.parameters == {"type": "object", "properties": {}}


def test_parameters_may_have_any_name():
    parameters = TOOLS["odd_names"].spec.parameters
    assert list(parameters["properties"]) == ["json", "model_config", "_x"]
    assert parameters["required"] == ["json"]


def test_models_are_described_by_reference():
    parameters = TOOLS["walk"].spec.parameters
    assert parameters["properties"]["to"] == {"$ref": "#/$defs/Point"}
    assert parameters["$defs"]["Point"]["required"] == ["x"]
    assert "title" not in str(parameters)


async def test_arguments_are_converted_defaults_filled_in_results_made_text():
    assert await call("dig", depth=3) == "hole 3 slow"
    assert await call("dig", depth="3", title="pit", how="fast") == "pit 3 fast"
    assert await call("odd_names", json="a", model_config=2, _x=True) == "a 2 True"
    assert await call("walk", to={"x": 1, "y": 2}) == '{"x": 3, "stops": null}'


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "dig: depth: Field required"),
        ({"depth": 10}, "depth: Input should be less than or equal to 9"),
        ({"depth": "deep"}, "depth: Input should be a valid integer"),
        ({"depth": 1, "how": "badly"}, "how: Input should be 'slow' or 'fast'"),
        ({"depth": 1, "width": 2}, "width: Extra inputs are not permitted"),
        ({"depth": 1, "title": "\ud800"}, "dig: an argument holds half a surrogate pair"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_in_one_line(arguments, complaint):
    with pytest.raises(ToolError) as caught:
        await call("dig", **arguments)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["rest", "block"])
async def test_a_tool_is_cut_at_its_deadline(name):
    with pytest.raises(ToolError, match=f"{name}: no result within 0.05 s"):
        await call(name)


async def test_only_tool_errors_are_for_the_agent():
    with pytest.raises(ToolError, match="the spade broke"):
        await call("fail", how="told")
    with pytest.raises(KeyError):
        await call("fail", how="own")
    with pytest.raises(TimeoutError, match="mine"):
        await call("fail", how="late")


class Selfish:
    @tool
    async def exit(self) -> str:
        """End the process."""
        raise SystemExit(3)

    @tool
    async def cancel(self) -> str:
        """Cancel whoever runs it."""
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task
        return "never"

    @tool
    def exit_in_a_thread(self) -> str:
        """End the process."""
        raise SystemExit(3)


@pytest.mark.parametrize("name", ["exit", "cancel", "exit_in_a_thread"])
async def test_a_tool_that_would_end_its_caller_fails_like_any_other(name):
    with pytest.raises(RuntimeError, match=r"raised (SystemExit\(3\)|CancelledError)"):
        await tools_of(Selfish)[name].call(Selfish(), {}, timeout_s=20)


async def test_a_call_that_is_cancelled_from_outside_ends_at_once():
    task = asyncio.create_task(tools_of(Garden)["rest"].call(Garden(), {}, timeout_s=20))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


def test_a_subclass_may_add_change_and_take_away():
    class Shed(Garden):
        def walk(self, to: str) -> str:
            """Walk by name."""
            return to

        block = None

        @tool
        def sit(self) -> str:
            """Sit."""
            return ""

    tools = tools_of(Shed)
    assert list(tools) == ["dig", "walk", "rest", "fail", "odd_names", "sit"]
    assert tools["walk"].spec.description == "Walk by name."
    assert tools["walk"].spec.parameters["properties"] == {"to": {"type": "string"}}


def test_what_has_no_schema_is_refused_when_the_class_is_made():
    class NoHint:
        @tool
        def look(self, at):
            """Look."""

    class Splat:
        @tool
        def look(self, *at: str):
            """Look."""

    class NoSchema:
        @tool
        def look(self, at: asyncio.Lock):
            """Look."""

    class Twice:
        @tool
        def look(self):
            """Look."""

        @tool(name="look")
        def see(self):
            """See."""

    class Unknown:
        @tool
        def look(self, at: "Nowhere"):  # noqa: F821
            """Look."""

    complaints = {
        Unknown: "import it at run time",
        NoHint: "no type hint",
        Splat: "named parameters",
        NoSchema: "JSON schema",
        Twice: "two tools named",
    }
    for cls, complaint in complaints.items():
        with pytest.raises(ConfigError, match=complaint):
            tools_of(cls)
    with pytest.raises(ConfigError, match="positive"):
        tool(timeout_s=0)


class Diary:
    """A tool that keeps something for each episode."""

    def __init__(self):
        self.pages = {}

    @tool
    def note(self, text: str, episode: Session) -> str:
        """Write a line."""
        self.pages.setdefault(episode, []).append(text)
        return "noted"


async def test_a_parameter_for_the_episode_is_filled_in_and_no_model_is_told_of_it():
    note = tools_of(Diary)["note"]
    assert list(note.spec.parameters["properties"]) == ["text"]
    diary = Diary()
    await note.call(diary, {"text": "a"}, timeout_s=5, session=Session("one"))
    with pytest.raises(ToolError, match="episode"):
        await note.call(diary, {"text": "b", "episode": "other"}, timeout_s=5, session=Session("two"))
    assert diary.pages == {"one": ["a"]}


class Patient:
    """A tool that keeps its deadline by itself, or does not."""

    @tool
    async def work(self, seconds: float, deadline: Deadline) -> str:
        """Work."""
        await asyncio.sleep(min(seconds, deadline) if seconds < 10 else seconds)
        return f"of {deadline:g} s"


async def test_a_tool_that_is_told_its_deadline_keeps_it_by_itself_and_is_not_waited_for_much_longer(monkeypatch):
    work = tools_of(Patient)["work"]
    assert list(work.spec.parameters["properties"]) == ["seconds"]
    assert await work.call(Patient(), {"seconds": 5}, timeout_s=0.1) == "of 0.1 s"
    monkeypatch.setattr("agar.tool_servers.tools._OWN_DEADLINE_GRACE_S", 0.1)
    with pytest.raises(ToolError, match=r"work: no result within 0\.1 s"):
        await work.call(Patient(), {"seconds": 60}, timeout_s=0.1)
