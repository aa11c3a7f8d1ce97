"""Env and AsyncEnv keep Gymnasium's contract."""

import asyncio
import gc
import threading

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import agar
from agar.envs.base import AsyncEnv, Env
from agar.envs.registry import registered
from agar.errors import DeadlineError, EnvError
from agar.types import ToolCall, ToolSpec, Turn


class Waiting(AsyncEnv):
    """Counts its turns, after a pause; remembers where it ran."""

    pause_s = 0.0
    released = 0

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        self.loops = [asyncio.get_running_loop()]
        self.left = int(self.np_random.integers(2, 9))
        return f"{self.left} to go", {}

    async def astep(self, action):
        await asyncio.sleep(self.pause_s)
        self.loops.append(asyncio.get_running_loop())
        self.left -= 1
        return f"{self.left} to go: {action.text}", 0.0, self.left == 0, False, {}

    async def arelease(self):
        self.released += 1


def test_every_registered_environment_passes_gymnasiums_check():
    names = [name for name in registered() if name in ("Guess-v0", "Hunt-v0")]
    assert len(names) == 2
    for name in names:
        kwargs = {"sandbox": {"backend": "fake"}} if name == "Hunt-v0" else {}
        for env in (agar.make(name, **kwargs), gymnasium.make(name, **kwargs).unwrapped):
            check_env(env)
            env.close()


def test_an_asynchronous_environment_passes_gymnasiums_check():
    env = Waiting()
    check_env(env, skip_render_check=True, skip_close_check=True)
    env.close()


def test_the_twelve_lines_of_the_first_example_work_as_they_stand():
    class Guess(agar.Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.number = int(self.np_random.integers(1, 100))
            return "Guess a number between 1 and 99.", {}

        def step(self, action: agar.Turn):
            guess = agar.parse_int(action.text)
            if guess == self.number:
                return "Right.", 1.0, True, False, {}
            return ("Higher." if guess is not None and guess < self.number else "Lower."), 0.0, False, False, {}

    agar.register("TwelveLines-v0", Guess, max_turns=8)
    env = gymnasium.make("TwelveLines-v0")
    check_env(env.unwrapped)
    _, _ = env.reset(seed=2)
    low, high = 1, 99
    for _ in range(7):
        middle = (low + high) // 2
        answer, reward, terminated, truncated, _ = env.step(agar.Turn(text=f"I say {middle}"))
        assert not truncated
        if terminated:
            break
        low, high = (middle + 1, high) if answer == "Higher." else (low, middle - 1)
    assert (answer, reward) == ("Right.", 1.0)


def test_a_text_is_a_turn_wherever_a_turn_is_expected():
    env = Waiting()
    env.reset(seed=1)
    assert env.step("hello")[0] == env.step(Turn(text="hello"))[0].replace(str(env.left), str(env.left + 1))
    env.close()
    guess = agar.make("Guess-v0")
    guess.reset(seed=1)
    assert guess.step("0")[0] == "Higher."


def test_reset_and_step_run_on_one_loop_in_one_thread_until_close():
    env = Waiting()
    env.reset(seed=1)
    env.step("a")
    assert len(set(env.loops)) == 1
    before = threading.active_count()
    env.close()
    env.close()
    assert threading.active_count() == before - 1
    assert env.loops[0].is_closed()
    assert env.released == 2  # at the reset and at the close


async def test_reset_and_step_work_under_a_running_loop():
    env = Waiting()
    env.reset(seed=1)
    assert env.step("a")[0].endswith("a")
    env.close()


def test_a_forgotten_environment_leaves_no_thread():
    before = threading.active_count()
    env = Waiting()
    env.reset(seed=1)
    assert threading.active_count() == before + 1
    del env
    gc.collect()
    assert threading.active_count() == before


def test_a_step_that_never_comes_back_hits_its_deadline():
    env = Waiting()
    env.reset(seed=1)
    env.pause_s, env.drive_timeout_s = 3600, 0.1
    with pytest.raises(DeadlineError, match=r"Waiting\.astep"):
        env.step("a")
    env.drive_timeout_s = 10
    env.close()


def test_a_timeout_inside_a_step_is_the_environments_own():
    class TimesOut(Waiting):
        async def astep(self, action):
            raise TimeoutError("mine")

    env = TimesOut()
    env.reset(seed=1)
    with pytest.raises(TimeoutError, match="mine"):
        env.step("a")
    env.close()


def test_the_action_space_samples_the_environments_tools():
    class WithTools(Env):
        @property
        def tools(self):
            return (ToolSpec(name="look"),)

    env = WithTools()
    assert env.action_space.tools == env.tools
    assert env.action_space is env.action_space is not WithTools().action_space
    assert Turn(tool_calls=(ToolCall(id="a", name="look"),)) in env.action_space


def test_an_environment_without_a_step_says_so():
    class Empty(AsyncEnv):
        pass

    env = Empty()
    env.reset()
    with pytest.raises(NotImplementedError, match="Empty must write astep"):
        env.step("a")
    env.close()


class Exits(AsyncEnv):
    """Wants to end the process, in a task that it makes itself."""

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        return "hello", {}

    async def astep(self, action):
        async def leave():
            raise SystemExit(3)

        self.made = asyncio.create_task(leave())
        self.made.add_done_callback(lambda task: task.exception())  # seen
        await asyncio.sleep(60)


def test_an_environment_that_ended_its_own_loop_gets_another_and_can_be_closed():
    env = Exits()
    env.reset()
    with pytest.raises(EnvError, match=r"agar-env-Exits has ended \(a task that was made in it raised SystemExit\(3\)"):
        env.step("x")
    assert env.reset()[0] == "hello"
    with pytest.raises(EnvError, match="has ended"):
        env.step("x")
    env.close()
