"""as_async keeps the contract on every environment's behalf."""

import asyncio
import contextvars
import threading
import time

import gymnasium
import pytest

from agar.envs.base import AsyncEnv, Env
from agar.envs.graded import GradedEnv
from agar.envs.registry import make
from agar.envs.rubric import Criterion, Rubric
from agar.envs.runner import as_async
from agar.errors import ConfigError, DeadlineError, EngineError, EnvError, LedgerError, SandboxError, ToolError
from agar.types import AsyncEnvLike, Message, Outcome, Turn


class Says(Env):
    """Gives what it was told to give."""

    def __init__(self, first="hello", step=("again", 0, False, False, {})):
        self.first, self.then = first, step
        self.threads = set()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.threads.add(threading.get_ident())
        if isinstance(self.first, Exception):
            raise self.first
        return (self.first, {}) if not isinstance(self.first, tuple) else self.first

    def step(self, action):
        if isinstance(self.then, BaseException):
            raise self.then
        return self.then


class SaysLater(AsyncEnv):
    """The same, asynchronously."""

    def __init__(self, step=("again", 0, False, False, {})):
        self.then = step
        self.released = 0

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        return "hello", {}

    async def astep(self, action):
        if isinstance(self.then, BaseException):
            raise self.then
        return self.then

    async def arelease(self):
        self.released += 1


user = Message(role="user", content="hi")


@pytest.mark.parametrize(
    ("observation", "messages"),
    [("hi", [user]), (user, [user]), ([user, user], [user, user]), ((user,), [user]), ("", []), ([], [])],
)
async def test_observations_come_as_messages(observation, messages):
    env = as_async(Says(first=(observation, {"a": 1}), step=(observation, 1, False, False, {})))
    assert isinstance(env, AsyncEnvLike)
    assert await env.areset() == (messages, {"a": 1})
    assert await env.astep("x") == (messages, 1.0, False, False, {})


async def test_a_synchronous_environment_runs_outside_the_loops_thread():
    env = Says()
    await as_async(env).areset()
    assert env.threads.isdisjoint({threading.get_ident()})


async def test_a_slow_environment_does_not_hold_up_the_loop():
    class Slow(Says):
        def step(self, action):
            time.sleep(0.2)
            return super().step(action)

    env = as_async(Slow())
    await env.areset()
    step = asyncio.create_task(env.astep("x"))
    ticks = 0
    while not step.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5


async def test_the_registered_turn_limit_truncates_unless_the_task_ended():
    env = as_async(make("Guess-v0"))
    await env.areset(seed=3)
    ends = [(await env.astep("0"))[2:] for _ in range(8)]
    assert ends[:7] == [(False, False, {})] * 7
    assert ends[7] == (False, True, {"truncated_by": "max_turns"})
    one = as_async(Says(step=("bye", 1.0, True, False, {})), max_turns=1)
    await one.areset()
    assert (await one.astep("x"))[2:] == (True, False, {})


async def test_gymnasiums_wrappers_are_not_stepped_over():
    class Shout(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return observation.upper()

    for inner in (Says(), SaysLater()):
        async with as_async(Shout(inner)) as env:
            assert (await env.areset())[0][0].text == "HELLO"
            assert (await env.astep("x"))[0][0].text == "AGAIN"


async def test_an_environment_made_by_gymnasium_plays_too():
    async with as_async(gymnasium.make("agar.envs.registry:Guess-v0")) as env:
        await env.areset(seed=3)
        for _ in range(7):
            await env.astep("0")
        assert (await env.astep("0"))[2:4] == (False, True)


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (ValueError("bug"), "step raised ValueError: bug"),
        (SystemExit(3), "step raised .*3"),
        (ToolError("no such file"), "step raised ToolError: no such file"),
        (LedgerError("no value of JSON"), "step raised LedgerError"),
        (("a", 0.0, True), "must return .* got a tuple of 3"),
        (None, "must return .* got NoneType"),
        (("a", 0.0, False, False, None), "must return"),
        ((3, 0.0, False, False, {}), "observation of type int"),
        ((["a"], 0.0, False, False, {}), "observation of type list"),
        (("a", "much", False, False, {}), "reward 'much'"),
        (("a", 0.0, "yes", False, {}), "terminated = 'yes'"),
        (([Message(role="user", content=7)], 0.0, False, False, {}), "content is of type int"),
        (([Message(role="user", content=("x",))], 0.0, False, False, {}), "the part 'x'"),
        (("x" * 9_000_000, 0.0, False, False, {}), "9,000,001 characters, at most"),
        (("a", float("nan"), False, False, {}), "reward nan"),
        (("a", float("inf"), False, False, {}), "reward inf"),
        (("a", 0.0, False, True, {"failure": "bad luck"}), "set an agar.Outcome"),
        (("a", 0.0, True, False, {"reward_parts": [1.0]}), "a table of names and numbers"),
        (("a", 0.0, True, False, {"reward_parts": {"style": "good"}}), "a table of names and numbers"),
        (("a", 0.0, True, False, {"reward_parts": {"style": float("nan")}}), "'style' is nan: return a finite number"),
    ],
)
@pytest.mark.parametrize("make_env", [Says, SaysLater])
async def test_a_broken_contract_is_an_env_error_that_says_what(make_env, result, complaint):
    env = as_async(make_env(step=result))
    await env.areset()
    with pytest.raises(EnvError, match=complaint):
        await env.astep("x")
    with pytest.raises(EnvError, match="reset it first"):
        await env.astep("x")


@pytest.mark.parametrize("first", [ValueError("bug"), ("a", {}, 1), ("a",), (3, {})])
async def test_a_broken_reset_is_an_env_error(first):
    with pytest.raises(EnvError, match="Says"):
        await as_async(Says(first=first)).areset()


async def test_a_hanging_step_is_an_env_error():
    class Hangs(SaysLater):
        async def astep(self, action):
            await asyncio.sleep(60)

    env = as_async(Hangs(), step_timeout_s=0.05)
    await env.areset()
    with pytest.raises(EnvError, match=r"Hangs\.step did not return within 0.05 s"):
        await env.astep("x")


async def test_a_sandbox_error_out_of_any_step_is_an_infrastructure_failure():
    for make_env in (Says, SaysLater):
        env = as_async(make_env(step=SandboxError("gone")))
        await env.areset()
        expected = {"failure": Outcome.INFRA_ERROR, "failure_reason": "gone"}
        assert await env.astep("x") == ([], 0.0, False, True, expected)


@pytest.mark.parametrize("error", [EngineError("the judge is gone"), DeadlineError("no sandbox within 600 s")])
async def test_an_error_that_names_who_failed_passes(error):
    env = as_async(SaysLater(step=error))
    await env.areset()
    with pytest.raises(type(error), match=str(error)):
        await env.astep("x")


async def test_the_deadline_of_an_environment_that_is_driven_is_its_own():
    class Hangs(SaysLater):
        drive_timeout_s = 10.0

        async def astep(self, action):
            await asyncio.sleep(60)

    inside = Hangs()
    async with as_async(gymnasium.wrappers.OrderEnforcing(inside)) as env:
        await env.areset()
        inside.drive_timeout_s = 0.05
        with pytest.raises(
            EnvError, match=r"Hangs.step raised DeadlineError: Hangs.astep gave no result within 0.05 s"
        ):
            await env.astep("x")
        inside.drive_timeout_s = 10.0


async def test_a_failure_may_be_named_by_its_value():
    env = as_async(Says(step=("a", 0.0, False, True, {"failure": "infra_error"})))
    await env.areset()
    assert (await env.astep("x"))[4]["failure"] is Outcome.INFRA_ERROR


async def test_no_step_before_a_reset_or_after_the_end():
    env = as_async(Says(step=("bye", 1.0, True, False, {})))
    with pytest.raises(EnvError, match="reset it first"):
        await env.astep("x")
    await env.areset()
    await env.astep(Turn(text="x"))
    with pytest.raises(EnvError, match="reset it first"):
        await env.astep("x")
    await env.areset()
    assert env.turns == 0


async def test_an_action_that_is_no_turn_leaves_the_episode_in_play():
    env = as_async(Says(step=("bye", 1.0, True, False, {})))
    await env.areset()
    with pytest.raises(ConfigError, match="expected a Turn or a text, got int: 7"):
        await env.astep(7)
    assert (await env.astep("x"))[1:3] == (1.0, True)


async def test_what_an_episode_holds_is_released_at_its_end_and_at_close():
    env = SaysLater(step=("bye", 1.0, True, False, {}))
    async with as_async(env) as runner:
        await runner.areset()
        await runner.astep("x")
        assert env.released == 2  # the reset releases what came before it
    assert env.released == 3


class Stuck(Says):
    """Its step waits until it is let go; notes what overlaps."""

    def __init__(self):
        super().__init__(step=("bye", 1.0, True, False, {}))
        self.go, self.closed = threading.Event(), threading.Event()
        self.inside = 0
        self.log = []

    def _note(self, what):
        self.inside += 1
        self.log.append((what, self.inside))
        if what == "step":
            self.go.wait(30)
        self.inside -= 1

    def reset(self, *, seed=None, options=None):
        self._note("reset")
        return super().reset(seed=seed)

    def step(self, action):
        self._note("step")
        return super().step(action)

    def close(self):
        self._note("close")
        self.closed.set()


async def test_a_call_that_hangs_is_never_joined_by_another():
    env = Stuck()
    runner = as_async(env, step_timeout_s=0.1)
    await runner.areset()
    with pytest.raises(EnvError, match="did not return"):
        await runner.astep("x")
    with pytest.raises(EnvError, match="did not return"):
        await runner.areset()
    assert env.log == [("reset", 1), ("step", 1)]
    env.go.set()
    await runner.areset()
    await runner.aclose()
    assert env.log[2:] == [("reset", 1), ("close", 1)]


async def test_an_environment_that_hangs_is_closed_when_it_returns_and_nobody_waits():
    env = Stuck()
    runner = as_async(env, step_timeout_s=0.1)
    await runner.areset()
    with pytest.raises(EnvError, match="did not return"):
        await runner.astep("x")
    await asyncio.wait_for(runner.aclose(), 5)
    assert ("close", 1) not in env.log
    env.go.set()
    assert await asyncio.to_thread(env.closed.wait, 5)
    assert env.log[-1] == ("close", 1), "not before the step had ended"


async def cancels_a_task_of_its_own():
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


async def cancels_the_task_that_runs_it():
    asyncio.current_task().cancel()
    await asyncio.sleep(60)


@pytest.mark.parametrize("where", ["areset", "astep", "agold", "arelease"])
@pytest.mark.parametrize("fault", [cancels_a_task_of_its_own, cancels_the_task_that_runs_it, "exit"])
async def test_an_environment_that_would_end_its_caller_is_named(where, fault):
    class Selfish(SaysLater):
        async def _does(self, place):
            if place == where and self.ready:
                if fault == "exit":
                    raise SystemExit(3)
                await fault()

        async def areset(self, *, seed=None, options=None):
            await self._does("areset")
            return await super().areset(seed=seed, options=options)

        async def astep(self, action):
            await self._does("astep")
            return await super().astep(action)

        async def agold(self):
            await self._does("agold")

        async def arelease(self):
            await self._does("arelease")

    env = Selfish(step=("bye", 1.0, True, False, {}))
    env.ready = False
    runner = as_async(env)
    await runner.areset()
    env.ready = True
    raised = r"SystemExit\(3\)" if fault == "exit" else "CancelledError"
    calls = {"areset": runner.areset, "agold": runner.agold, "arelease": runner.aclose}
    with pytest.raises(EnvError, match=rf"Selfish\.{where[1:]} raised .*{raised}"):
        await calls.get(where, lambda: runner.astep("x"))()


async def test_a_step_that_is_cancelled_from_outside_ends_at_once():
    inside = asyncio.Event()

    class Waits(SaysLater):
        async def astep(self, action):
            inside.set()
            await asyncio.sleep(60)

    runner = as_async(Waits())
    await runner.areset()
    step = asyncio.create_task(runner.astep("x"))
    await inside.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step


class Threaded(Env):
    """What SQLite does: every call must come from the thread of the first one."""

    def __init__(self):
        self.calls = []

    def _note(self, what):
        self.calls.append((what, threading.get_ident()))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._note("reset")
        return "hello", {}

    def step(self, action):
        self._note("step")
        return "", 1.0, True, False, {}

    def gold(self):
        self._note("gold")
        return "the answer"

    def close(self):
        self._note("close")


@pytest.mark.parametrize("graded", [False, True])
async def test_all_calls_of_a_synchronous_environment_come_from_one_thread(graded):
    env = Threaded()
    rubric = Rubric([Criterion(name="one", score=lambda told: 1.0)])
    async with as_async(GradedEnv(env, rubric) if graded else env) as runner:
        await runner.areset()
        assert await runner.agold() == Turn(text="the answer")
        await runner.astep("x")
        await runner.aclose()
    assert [what for what, _ in env.calls] == ["reset", "gold", "step", "close"], "and it is closed once"
    assert len({thread for _, thread in env.calls} - {threading.get_ident()}) == 1


async def test_gold_of_an_environment_that_is_driven_comes_from_its_loop():
    class Driven(AsyncEnv):
        async def areset(self, *, seed=None, options=None):
            await super().areset(seed=seed, options=options)
            self.loop = asyncio.get_running_loop()
            return "hello", {}

        def gold(self):
            return str(asyncio.get_running_loop() is self.loop)

    for env in (Driven(), gymnasium.wrappers.OrderEnforcing(Driven())):
        async with as_async(env) as runner:
            await runner.areset()
            assert await runner.agold() == Turn(text="True")


async def test_gold_that_raises_or_hangs_is_the_environments_fault():
    go = threading.Event()

    class Bad(Says):
        def gold(self):
            go.wait(20)
            raise ValueError("bug")

    async with as_async(Bad(), step_timeout_s=0.05) as runner:
        await runner.areset()
        with pytest.raises(EnvError, match=r"Bad\.gold did not return within 0.05 s"):
            await runner.agold()
        go.set()
        runner.step_timeout_s = 20
        with pytest.raises(EnvError, match=r"Bad\.gold raised ValueError: bug"):
            await runner.agold()


class Unprintable:
    def __repr__(self):
        raise ValueError("bug")


@pytest.mark.parametrize("make_env", [Says, SaysLater])
@pytest.mark.parametrize(
    ("gold", "complaint"), [(7, "7"), ({"text": "x"}, "{'text': 'x'}"), (Unprintable(), "a Unprintable whose repr")]
)
async def test_gold_that_is_no_turn_is_the_environments_fault(make_env, gold, complaint):
    class Bad(make_env):
        def gold(self):
            return gold

    async with as_async(Bad()) as runner:
        await runner.areset()
        with pytest.raises(EnvError, match=f"Bad.gold gave {complaint}.*: return an agar.Turn, a text or None"):
            await runner.agold()


SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="nothing")


async def test_context_variables_last_from_the_reset_to_the_close():
    class Sets(Says):
        def reset(self, *, seed=None, options=None):
            SEEN.set("set in reset")
            return super().reset(seed=seed)

        def step(self, action):
            return SEEN.get(), 0.0, False, False, {}

        def close(self):
            self.last = SEEN.get()

    env = Sets()
    async with as_async(env) as runner:
        await runner.areset()
        assert (await runner.astep("x"))[0][0].text == "set in reset"
    assert env.last == "set in reset"
    assert SEEN.get() == "nothing", "and nobody else sees them"


def test_another_loop_goes_on_after_a_call_that_the_first_one_gave_up():
    env = Stuck()
    runner = as_async(env, step_timeout_s=0.05)

    async def first():
        await runner.areset()
        with pytest.raises(EnvError, match="did not return"):
            await runner.astep("x")

    async def second():
        runner.step_timeout_s = 20
        await runner.areset()
        await runner.aclose()

    asyncio.run(first())
    env.go.set()
    asyncio.run(second())
    assert env.log == [("reset", 1), ("step", 1), ("reset", 1), ("close", 1)]


async def test_a_close_that_hangs_is_left_alone_with_a_warning(caplog, monkeypatch):
    heard = threading.Event()

    def listen(record):
        if "Hangs.close raised ValueError: bug" in record.getMessage():
            heard.set()
        return True

    monkeypatch.setattr(caplog.handler, "filters", [listen])
    go, entered, left = threading.Event(), threading.Event(), threading.Event()

    class Hangs(Says):
        def close(self):
            entered.set()
            go.wait(30)
            left.set()
            raise ValueError("bug")

    runner = as_async(Hangs(), step_timeout_s=20)
    await runner.areset()
    runner.step_timeout_s = 0.05
    await asyncio.wait_for(runner.aclose(), 20)
    assert "Hangs.close did not return within 0.05 s: it is left alone" in caplog.text
    assert not left.is_set()
    go.set()
    assert await asyncio.to_thread(left.wait, 20), "it goes on by itself"
    assert await asyncio.to_thread(heard.wait, 20), "and what it raises is said"


async def test_a_release_that_hangs_changes_nothing_about_the_episode(caplog):
    class Hangs(SaysLater):
        async def arelease(self):
            await asyncio.sleep(60 if self.released else 0)
            self.released = 1

    runner = as_async(Hangs(step=("bye", 1.0, True, False, {})), step_timeout_s=20)
    await runner.areset()
    runner.step_timeout_s = 0.05
    assert (await runner.astep("x"))[1:3] == (1.0, True)
    assert "Hangs.release did not return within 0.05 s: it is left alone" in caplog.text
    await asyncio.wait_for(runner.aclose(), 20)


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (("bye", 1.0, True, False, {}), ([Message(role="user", content="bye")], 1.0, True, False, {})),
        (
            SandboxError("gone"),
            ([], 0.0, False, True, {"failure": Outcome.INFRA_ERROR, "failure_reason": "gone"}),
        ),
    ],
)
async def test_a_release_that_raises_changes_nothing_about_the_episode(step, result, caplog):
    class Raises(SaysLater):
        async def arelease(self):
            self.released += 1
            if self.released == 2:  # the reset releases what came before it
                raise ValueError("bug")

    async with as_async(Raises(step=step)) as runner:
        await runner.areset()
        assert await runner.astep("x") == result
        assert "Raises.release raised ValueError: bug" in caplog.text
        await runner.areset()


async def test_a_close_that_raises_is_an_env_error():
    class Raises(Says):
        def close(self):
            raise ValueError("bug")

    runner = as_async(Raises())
    await runner.areset()
    with pytest.raises(EnvError, match=r"Raises\.close raised ValueError: bug"):
        await runner.aclose()
    await runner.aclose()


async def test_what_a_rubric_grades_is_not_closed_while_a_step_of_it_runs(caplog):
    env = Stuck()
    runner = as_async(GradedEnv(env, Rubric([Criterion(name="one", score=lambda told: 1.0)])), step_timeout_s=20)
    await runner.areset()
    runner.step_timeout_s = 0.05
    with pytest.raises(EnvError, match="did not return"):
        await runner.astep("x")
    await asyncio.wait_for(runner.aclose(), 20)
    assert "Stuck is still in a call: it is closed when that returns" in caplog.text
    env.go.set()
    assert await asyncio.to_thread(env.closed.wait, 20)
    assert env.log == [("reset", 1), ("step", 1), ("close", 1)]
