"""ToolEnv: calls side by side, order kept, whose fault is whose."""

import asyncio
from dataclasses import replace

import pytest

import agar
from agar.envs.artifacts import Artifacts
from agar.envs.runner import as_async
from agar.envs.tool_env import ToolEnv, tool
from agar.errors import ConfigError, EnvError, SandboxError, ToolError, UnsupportedPlatformError
from agar.sandbox.base import ExecResult
from agar.sandbox.config import SandboxSpec
from agar.sandbox.fake import FakeSandbox
from agar.types import Message, Outcome, Reward, ToolCall, Turn


class Shop(ToolEnv):
    """Tools that meet each other, wait, fail; sells what is named."""

    sandbox = SandboxSpec(backend="fake")
    tool_timeout_s = 5.0
    script = None

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        self.barrier = asyncio.Barrier(3)
        self.setups = 0
        return "What will you have?", {}

    def make_sandbox(self):
        self.made = FakeSandbox(self.sandbox, script=self.script)
        return self.made

    async def setup(self, sb):
        self.setups += 1
        await sb.write("shelf", "tea")

    @tool
    async def meet(self, name: str) -> str:
        await self.barrier.wait()
        return name

    @tool
    async def shelf(self) -> str:
        return (await self.sb.exec("cat shelf")).stdout

    @tool
    async def own_mistake(self) -> str:
        raise KeyError("bug")

    @tool
    async def refuse(self) -> str:
        raise ToolError("we are closed")

    async def answer(self, action):
        if action.text == "die":
            raise SandboxError("died while grading")
        return "Here.", 1.0, True, False, {}


def calls(*names, **arguments):
    return Turn(tool_calls=tuple(ToolCall(id=f"c{i}", name=n, arguments=arguments) for i, n in enumerate(names)))


@pytest.fixture
async def shop():
    env = Shop()
    async with as_async(env) as runner:
        await runner.areset(seed=1)
        yield runner, env


async def test_the_calls_of_a_turn_run_side_by_side_and_are_answered_in_order(shop):
    runner, _ = shop
    turn = Turn(tool_calls=tuple(ToolCall(id=i, name="meet", arguments={"name": i}) for i in "cab"))
    observation, reward, terminated, truncated, info = await asyncio.wait_for(runner.astep(turn), 5)
    assert observation == [Message(role="tool", content=i, tool_call_id=i) for i in "cab"]
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        (calls("sell"), "error: no tool 'sell'; there are: meet, shelf, own_mistake, refuse"),
        (calls("meet"), "error: meet: name: Field required"),
        (calls("refuse"), "error: we are closed"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told_and_the_episode_goes_on(shop, turn, text):
    runner, _ = shop
    observation, _, terminated, truncated, info = await runner.astep(turn)
    assert observation == [Message(role="tool", content=text, tool_call_id="c0")]
    assert (terminated, truncated, info) == (False, False, {})
    assert (await runner.astep("tea"))[1:3] == (1.0, True)


async def test_what_no_conversation_holds_is_mended_in_a_tools_answer(shop):
    """Else an agent could end an episode that goes badly as the environment's failure."""
    runner, env = shop
    await env.sb.write("shelf", "tea")
    env.made._script = lambda call: ExecResult(code=0, stdout="caf\udce9 \ud83d\ude00 \ud800")
    env.made._cut = lambda result: result
    observation, _, terminated, truncated, info = await runner.astep(calls("shelf", "refuse"))
    assert [message.text for message in observation] == ["caf? ?? ?", "error: we are closed"]
    assert (terminated, truncated, info) == (False, False, {})
    observation, *_ = await runner.astep(Turn(text="x", parse_error="no tool \ud800"))
    assert observation[0].text == "Tool call not understood: no tool ?"
    env.made._script = lambda call: ExecResult(code=0, stdout="x" * (5 << 20))
    observation, *_ = await runner.astep(calls("shelf", "shelf"))
    assert [message.text[-31:] for message in observation] == ["\n... 3145728 characters left out"[-31:]] * 2
    assert (await runner.astep("tea"))[1:3] == (1.0, True)


async def test_a_deadline_is_told(shop):
    runner, env = shop
    env.tool_timeout_s = 0.05
    observation, *_ = await runner.astep(calls("meet", name="alone"))
    assert observation[0].text == "error: meet: no result within 0.05 s"


async def test_a_turn_whose_calls_could_not_be_parsed_is_told_and_not_graded(shop):
    runner, _ = shop
    observation, reward, terminated, *_ = await runner.astep(Turn(text="<tool_call>{", parse_error="not JSON"))
    assert observation == [Message(role="user", content="Tool call not understood: not JSON")]
    assert (reward, terminated) == (0.0, False)
    observation, *_ = await runner.astep(replace(calls("shelf"), parse_error="the second one is not JSON"))
    assert [message.text for message in observation] == ["tea", "Tool call not understood: the second one is not JSON"]


async def test_a_mistake_inside_a_tool_is_the_environments(shop):
    runner, _ = shop
    with pytest.raises(EnvError, match="step raised KeyError: 'bug'"):
        await runner.astep(calls("own_mistake"))


async def test_one_mistake_among_several_calls_is_reported_as_itself(shop):
    runner, _ = shop
    with pytest.raises(EnvError, match="step raised KeyError: 'bug'"):
        await runner.astep(calls("shelf", "own_mistake"))


async def test_the_sandbox_starts_at_its_first_use_once_and_ends_with_the_episode(shop):
    runner, env = shop
    assert not env.sb.started
    observation, *_ = await runner.astep(calls("shelf", "shelf", "shelf"))
    assert [message.text for message in observation] == ["tea"] * 3
    assert (env.setups, len(env.made.calls)) == (1, 3)
    await runner.astep("tea")
    assert env.made.closed
    with pytest.raises(SandboxError, match="the episode is over"):
        await env.sb.exec("true")


async def test_every_episode_has_a_sandbox_of_its_own_and_the_last_one_is_closed(shop):
    runner, env = shop
    await runner.astep(calls("shelf"))
    first = env.made
    await runner.areset(seed=1)
    assert first.closed
    await runner.astep(calls("shelf"))
    assert env.made is not first
    await runner.aclose()
    assert env.made.closed


async def test_a_turn_limit_ends_the_sandbox_too():
    env = Shop()
    async with as_async(env, max_turns=2) as runner:
        await runner.areset()
        await runner.astep(calls("shelf"))
        assert (await runner.astep(calls("shelf")))[2:4] == (False, True)
        assert env.made.closed


async def test_closing_from_synchronous_code_closes_a_sandbox_that_was_used_from_asynchronous():
    env = Shop()
    await env.areset(seed=1)
    await env.astep(calls("shelf"))
    assert not env.made.closed
    await asyncio.to_thread(env.close)
    assert env.made.closed


async def assert_infrastructure_failure(result):
    observation, reward, terminated, truncated, info = result
    assert (observation, reward, terminated, truncated) == ([], 0.0, False, True)
    assert info["failure"] is Outcome.INFRA_ERROR
    return info["failure_reason"]


@pytest.mark.parametrize("turn", [calls("shelf"), calls("shelf", "shelf")])
async def test_a_dead_sandbox_is_an_infrastructure_failure_and_no_reward_of_zero(turn):
    env = Shop()
    env.script = lambda call: SandboxError("the sandbox died")
    async with as_async(env) as runner:
        await runner.areset()
        assert await assert_infrastructure_failure(await runner.astep(turn)) == "the sandbox died"
        assert env.made.closed
        with pytest.raises(EnvError, match="reset it first"):
            await runner.astep("tea")


async def test_a_sandbox_that_dies_while_grading_is_one_too(shop):
    runner, _ = shop
    await assert_infrastructure_failure(await runner.astep("die"))


async def test_a_sandbox_that_does_not_start_is_one_too_and_is_not_tried_again():
    class NeverStarts(Shop):
        tries = 0

        async def setup(self, sb):
            self.tries += 1
            raise SandboxError("did not start")

    env = NeverStarts()
    async with as_async(env) as runner:
        await runner.areset()
        await assert_infrastructure_failure(await runner.astep(calls("shelf", "shelf")))
        assert (env.tries, env.made.closed) == (1, True)


async def test_a_tool_that_catches_everything_cannot_hide_a_dead_sandbox():
    class Swallows(Shop):
        @tool
        async def shelf(self) -> str:
            try:
                return (await self.sb.exec("cat shelf")).stdout
            except Exception:
                return "empty"

    env = Swallows()
    env.script = lambda call: SandboxError("the sandbox died")
    async with as_async(env) as runner:
        await runner.areset()
        assert await assert_infrastructure_failure(await runner.astep(calls("shelf"))) == "the sandbox died"


async def test_a_sandbox_too_slow_to_start_is_not_the_agents_lost_time():
    class Slow(Shop):
        tool_timeout_s = 0.05

        async def setup(self, sb):
            await asyncio.sleep(60)

    async with as_async(Slow()) as runner:
        await runner.areset()
        reason = await assert_infrastructure_failure(await runner.astep(calls("shelf")))
        assert "did not start" in reason


async def test_a_sandbox_that_does_not_close_is_logged_and_costs_no_reward(shop, caplog):
    runner, env = shop
    await runner.astep(calls("shelf"))

    async def stuck():
        raise SandboxError("still there")

    env.made.close = stuck
    assert (await runner.astep("tea"))[1:3] == (1.0, True)
    assert "Shop could not close its sandbox: still there" in caplog.text


async def test_a_machine_without_sandboxes_stops_the_run_rather_than_the_episode():
    env = Shop()
    env.script = lambda call: UnsupportedPlatformError("no user namespaces")
    async with as_async(env) as runner:
        await runner.areset()
        with pytest.raises(UnsupportedPlatformError):
            await runner.astep(calls("shelf"))


async def test_files_that_cannot_be_laid_out_are_the_environments_fault():
    class TooMuch(Shop):
        async def setup(self, sb):
            await sb.write("big", b"0" * (65 << 20))

    async with as_async(TooMuch()) as runner:
        await runner.areset()
        with pytest.raises(EnvError, match="could not be laid out"):
            await runner.astep(calls("shelf"))


async def test_files_go_in_and_out(shop, tmp_path):
    _, env = shop
    (tmp_path / "in").write_text("milk")
    await env.sb.put(tmp_path / "in", "milk")
    await env.sb.write("more", "x")
    assert await env.sb.read("milk") == b"milk"
    await env.sb.get("milk", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "milk"
    result = await env.sb.exec(["cat", "more"], timeout_s=1)
    assert isinstance(result, ExecResult)
    assert result.stdout == "x"


def test_the_sandbox_can_be_set_by_class_by_object_and_by_recipe():
    assert Shop().sandbox == SandboxSpec(backend="fake")
    assert Shop(sandbox=SandboxSpec(memory_mib=64)).sandbox.memory_mib == 64
    assert Shop(sandbox={"backend": "fake", "memory_mib": 32}).sandbox == SandboxSpec(backend="fake", memory_mib=32)


async def test_an_environment_without_a_sandbox_says_so():
    class Bare(ToolEnv):
        @tool
        async def look(self) -> str:
            await self.sb.exec("true")
            return ""

    async with as_async(Bare()) as runner:
        await runner.areset()
        with pytest.raises(EnvError, match="Bare has no sandbox"):
            await runner.astep(calls("look"))
        await runner.areset()
        with pytest.raises(EnvError, match="Bare must write answer"):
            await runner.astep("tea")


def test_tools_are_what_the_agent_is_told():
    assert [spec.name for spec in Shop().tools] == ["meet", "shelf", "own_mistake", "refuse"]
    assert agar.ToolEnv is ToolEnv


class Submits(ToolEnv):
    """Hands in by a tool."""

    submits = True

    @tool
    def look(self) -> str:
        """Look."""
        return "a cat"

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        return "What is there?", {}

    async def answer(self, action):
        return "Thank you.", float(action.text == "cat"), True, False, {}


def test_submit_is_a_tool_only_where_it_is_asked_for():
    class Silent(Submits):
        submits = False

    assert [spec.name for spec in Submits().tools] == ["submit", "look"]
    assert [spec.name for spec in Silent().tools] == ["look"]


async def test_what_is_submitted_is_graded_after_the_other_calls_of_the_turn():
    env = Submits()
    await env.areset()
    calls = (ToolCall(id="a", name="submit", arguments={"answer": "cat"}), ToolCall(id="b", name="look"))
    messages, reward, terminated, _, _ = await env.astep(Turn(tool_calls=calls))
    assert (reward, terminated) == (1.0, True)
    assert [(m.role, m.tool_call_id, m.text) for m in messages] == [
        ("tool", "a", "submitted"),
        ("tool", "b", "a cat"),
        ("user", None, "Thank you."),
    ]


async def test_a_submission_that_does_not_fit_is_answered_and_the_episode_goes_on():
    env = Submits()
    await env.areset()
    call = ToolCall(id="a", name="submit", arguments={"answer": ["cat"]})
    messages, reward, terminated, truncated, _ = await env.astep(Turn(tool_calls=(call,)))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert messages[0].text.startswith("error: submit: answer")
    assert (await env.astep(Turn(text="cat")))[1:3] == (1.0, True)


class Judged(Shop):
    """Pays for the file that the agent leaves, in a sandbox that the agent has never seen."""

    collects = ("*.txt",)

    def make_sandbox(self):
        self.boxes = [*getattr(self, "boxes", ()), FakeSandbox(self.sandbox)]
        return self.boxes[-1]

    answer = ToolEnv.answer

    async def grade(self, fresh, artifacts):
        self.seen = (fresh, artifacts, self.boxes[0].closed)
        await artifacts.lay_out(fresh, original={"a.txt": b"start"})
        right = await fresh.read("a.txt") == b"good"
        return Reward(total=float(right), parts={"tests": float(right)})


@pytest.fixture
async def judged():
    env = Judged()
    async with as_async(env) as runner:
        await runner.areset(seed=1)
        yield runner, env


async def test_files_are_judged_in_a_fresh_sandbox_once_the_agent_is_gone(judged):
    runner, env = judged
    await env.sb.write("a.txt", "good")
    await env.sb.write("shelf", "bad")
    _, reward, terminated, _, info = await runner.astep("done")
    assert (reward, terminated, info["reward_parts"]) == (1.0, True, {"tests": 1.0})
    fresh, artifacts, agent_was_gone = env.seen
    assert len(env.boxes) == 2
    assert (fresh is env.boxes[1], fresh.closed, agent_was_gone) == (True, True, True)
    assert dict(artifacts.files) == {"a.txt": b"good"}
    assert env.setups == 1, "the judge's sandbox is not the agent's to set up"


async def test_files_can_be_handed_in_as_a_text(judged):
    runner, env = judged
    text = Artifacts(files={"a.txt": b"good"}).to_text()
    assert (await runner.astep(text))[1] == 1.0
    assert len(env.boxes) == 1


async def test_files_that_cannot_be_laid_out_earn_nothing(judged):
    runner, env = judged
    env.collects = ("**/*.txt",)
    await env.sb.write("a.txt/b.txt", "a folder in the place of a file")
    observation, reward, terminated, _, info = await runner.astep("done")
    assert (observation, reward, terminated) == ([], 0.0, True)
    assert "a.txt" in info["ungraded"]


async def test_a_judges_sandbox_that_fails_is_nobodys_fault(judged):
    runner, env = judged

    def broken():
        return FakeSandbox(env.sandbox, script=lambda call: SandboxError("died"))

    async def grade(fresh, artifacts):
        await fresh.exec("true")

    env.make_sandbox, env.grade = broken, grade
    _, _, _, truncated, info = await runner.astep(Artifacts(files={}).to_text())
    assert (truncated, info["failure"]) == (True, Outcome.INFRA_ERROR)


@pytest.mark.parametrize("method", ["close", "answer", "reset", "render", "tools", "spec"])
def test_a_tool_does_not_take_the_place_of_what_the_environment_needs(method):
    def body(self) -> str:
        """Do it."""
        return "done"

    body.__name__ = method
    with pytest.raises(ConfigError, match=f"Taken: the tool '{method}' takes the place of the environment's own"):
        type("Taken", (ToolEnv,), {method: tool(body)})
    body.__name__ = f"do_{method}"
    free = type("Free", (ToolEnv,), {body.__name__: tool(name=method)(body)})
    assert [each.name for each in free().tools] == [method]


def test_what_a_tool_takes_the_place_of_is_told_by_where_it_stands_not_by_its_functions_name():
    def wrapper(self) -> str:
        """Do it."""
        return "done"

    with pytest.raises(ConfigError, match="Taken: the tool 'wrapper' takes the place of the environment's own 'close'"):
        type("Taken", (ToolEnv,), {"close": tool(wrapper)})
    wrapper.__name__ = "close"
    free = type("Free", (ToolEnv,), {"shut": tool(wrapper)})
    assert free.close is ToolEnv.close
    assert [each.name for each in free().tools] == ["close"]


def test_the_tool_that_hands_in_may_be_written_over():
    class Polite(ToolEnv):
        submits = True

        @tool
        def submit(self, answer: str) -> str:
            """Say goodbye."""
            return super().submit(answer)

    assert [each.description for each in Polite().tools] == ["Say goodbye."]


async def test_an_environment_with_neither_answer_nor_grade_says_so():
    env = ToolEnv(sandbox={"backend": "fake"})
    async with as_async(env) as runner:
        await runner.areset(seed=1)
        with pytest.raises(EnvError, match="must write answer"):
            await runner.astep("done")
