"""The scripted hunters: what they earn, and that they err only in what they do."""

import itertools

import numpy as np
import pytest

from agar.agents.hunters import blind_answerer, gold_hunter, imperfect_hunter
from agar.agents.scripted import ScriptedAgent
from agar.envs.library.hunt import Hunt, tasks
from agar.envs.parsing import parse_int
from agar.envs.runner import as_async
from agar.errors import ConfigError
from agar.sandbox.config import SandboxSpec
from agar.types import Outcome


async def play(policy, count, *, split="heldout", attempt=0):
    """Play a policy over the first tasks, in scripted sandboxes."""
    agent = ScriptedAgent(policy)
    async with as_async(Hunt(sandbox=SandboxSpec(backend="fake"))) as env:
        return [await agent.transcript(env, task, attempt=attempt) for task in itertools.islice(tasks(split), count)]


async def test_the_gold_hunter_always_finds_the_gold_with_just_the_calls_it_needs():
    for transcript in await play(gold_hunter, 128):
        assert (transcript.reward, transcript.outcome) == (1.0, Outcome.COMPLETED)
        assert transcript.turns == len(transcript.task.payload["trail"]) + 1


async def test_the_imperfect_hunter_earns_between_a_tenth_and_four_tenths():
    rewards = [transcript.reward for transcript in await play(imperfect_hunter(), 400)]
    assert 0.15 < np.mean(rewards) < 0.40  # 0.26 expected: (0.85 + 0.17 + 0.034 + 0.007) / 4


async def test_answering_without_tools_earns_almost_nothing():
    transcripts = await play(blind_answerer, 1000)
    assert np.mean([transcript.reward for transcript in transcripts]) < 0.05
    assert all(transcript.turns == 1 for transcript in transcripts)


async def test_whatever_a_hunter_says_follows_from_what_it_last_saw():
    for transcript in await play(imperfect_hunter(), 100):
        *_, seen, said = transcript.messages
        assert said.role == "assistant"
        assert int(said.text) == parse_int(seen.text)


async def test_a_hunter_without_faults_is_the_gold_hunter():
    assert await play(imperfect_hunter(give_up=0, astray=0), 20) == await play(gold_hunter, 20)


async def test_the_same_attempt_is_the_same_episode_and_another_attempt_is_not():
    first, again, other = [await play(imperfect_hunter(), 20, attempt=attempt) for attempt in (0, 0, 1)]
    assert first == again
    assert first != other


def test_impossible_chances_are_refused():
    with pytest.raises(ConfigError, match="at most 1"):
        imperfect_hunter(give_up=0.9, astray=0.2)
