"""ScriptedAgent: what it plays, what it keeps."""

import pytest

from agar.agents.scripted import ScriptedAgent
from agar.envs.library.guess import Guess
from agar.envs.registry import make
from agar.envs.runner import as_async
from agar.errors import EnvError
from agar.types import Outcome, TaskRow

TASK = TaskRow(key="t", payload={"seed": 5})


def counting_up(messages, tools, rng):
    return str(len(messages))


async def test_the_transcript_holds_the_whole_conversation_in_order():
    async with as_async(Guess()) as env:
        played = await ScriptedAgent(lambda messages, tools, rng: "200", max_turns=2).transcript(env, TASK)
    assert [(m.role, m.content) for m in played.messages] == [
        ("user", "Guess a number between 1 and 99."),
        ("assistant", "200"),
        ("user", "Lower."),
        ("assistant", "200"),
        ("user", "Lower."),
    ]
    assert (played.turns, played.outcome, played.reward) == (2, Outcome.TRUNCATED, 0.0)


async def test_the_environments_turn_limit_truncates():
    async with as_async(make("Guess-v0")) as env:
        played = await ScriptedAgent(lambda messages, tools, rng: "no").transcript(env, TASK)
    assert (played.turns, played.outcome, played.info["truncated_by"]) == (8, Outcome.TRUNCATED, "max_turns")


async def test_play_is_the_agents_protocol():
    async with as_async(Guess()) as env:
        assert await ScriptedAgent(counting_up, max_turns=3).play(env, TASK, None) is None
        assert env.turns == 3


async def test_it_takes_a_turn_at_least():
    async with as_async(Guess()) as env:
        with pytest.raises(EnvError, match="at least one turn"):
            await ScriptedAgent(counting_up, max_turns=0).transcript(env, TASK)
