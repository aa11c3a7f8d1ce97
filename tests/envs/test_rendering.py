"""Exchanges as people read them."""

import gymnasium

import agar
from agar.envs.base import Env
from agar.envs.registry import make
from agar.envs.rendering import rendering
from agar.types import Message, ToolCall, Turn


def test_a_turn_and_its_answer():
    call = ToolCall(id="a", name="sh", arguments={"command": "ls"})
    turn = Turn(text="Let me look.", tool_calls=(call,))
    result = ([Message(role="tool", content="a.txt"), Message(role="user", content="Well?")], 0.0, False, False, {})
    assert rendering(turn, result) == '> Let me look.\n> sh({"command": "ls"})\ntool: a.txt\nWell?'


def test_ends_and_rewards_are_told():
    assert rendering(Turn(), ("", 1.0, True, False, {})) == "> \n[reward 1] the end"
    assert rendering(Turn(text="x"), ("so", 0.0, False, True, {})) == "> x\nso\n[reward 0] cut off"
    assert rendering(None, (Message(role="system", content="Be brief."), {})) == "system: Be brief."


def test_an_environment_draws_its_latest_exchange_where_it_is_asked_to():
    env = make("Guess-v0", render_mode="ansi")
    assert env.render() == "Nothing has happened yet."
    env.reset(seed=1)
    assert env.render() == "Guess a number between 1 and 99."
    env.step("0")
    assert env.render() == "> 0\nHigher."
    silent = make("Guess-v0")
    silent.reset(seed=1)
    assert silent.render() is None


def test_gymnasium_draws_it_too_and_an_author_may_draw_more():
    class Board(Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return "go", {}

        def render(self):
            return "a board"

    agar.register("Board-v0", Board)
    for name, drawn in [("agar.envs.registry:Calc-v0", " has "), ("Board-v0", "a board")]:
        env = gymnasium.make(name, render_mode="ansi")
        env.reset(seed=1)
        assert drawn in env.render()
        env.close()
