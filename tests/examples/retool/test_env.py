"""ReTool by hand: cells that lean on each other, the reward, and what goes wrong."""

import numpy as np
import pytest

from agar.envs.checker import check_env
from agar.envs.registry import make
from agar.envs.runner import as_async
from agar.errors import EnvError
from agar.examples.retool.agents import reasoner
from agar.examples.retool.env import ReTool, boxed, run, small
from agar.examples.retool.problems import draw, problems
from agar.types import Outcome, TaskRow, Turn

HELDOUT = 128
"""As many as the recipe evaluates."""
PLAYED = {"sandbox": {"backend": "fake"}}


async def play(env, task, policy, *, seed=0):
    """What a scripted policy was told, and its reward."""
    rng, said = np.random.default_rng(seed), []
    async with as_async(env, max_turns=8) as runner:
        messages, _ = await runner.areset(options={"task": task})
        said += messages
        while True:
            turn = Turn.of(policy(said, runner.tools, rng))
            said.append(turn.message())
            messages, reward, terminated, truncated, info = await runner.astep(turn)
            said += messages
            if terminated or truncated:
                return [message.text for message in said if message.role == "tool"], reward, info


def test_problems_are_what_python_makes_of_them_and_no_held_out_one_is_trained_on():
    rng = np.random.default_rng(1)
    for _ in range(200):
        prompt, payload = draw(rng)
        names: dict[str, int] = {}
        *statements, last = payload["cells"]
        exec("\n".join(statements), {}, names)
        assert names[last] == payload["answer"]
        assert prompt == f"{'; '.join(statements)}; {last}?"
    trained = {problems("train")[index].prompt for index in range(2000)}
    assert not trained & {problems("heldout")[index].prompt for index in range(256)}


@pytest.mark.sandbox
async def test_the_played_kernel_says_what_the_real_one_says():
    for index in range(12):
        task = problems("train")[index]
        policy = reasoner(skip=0.5)
        played = await play(small(**PLAYED), task, policy, seed=index)
        real = await play(small(), task, policy, seed=index)
        assert played == real


@pytest.mark.sandbox
async def test_a_cell_that_says_what_no_conversation_holds_ends_no_episode():
    async with as_async(small()) as runner:
        await runner.areset(options={"task": problems("train")[0]})
        for number, cell in enumerate(("raise ValueError(chr(0xd800))", "print(chr(0xd800))", "chr(0xd800) + 'x'")):
            [message], _, terminated, truncated, info = await runner.astep(run(cell, call=number))
            assert message.text.encode()
            assert (terminated, truncated, info) == (False, False, {}), cell


async def test_a_played_kernel_refuses_what_it_cannot_play():
    async with as_async(small(**PLAYED)) as runner:
        await runner.areset(options={"task": problems("train")[0]})
        with pytest.raises(EnvError, match="integer arithmetic only"):
            await runner.astep(run("import os", call=0))


@pytest.mark.parametrize(("split", "count"), [("train", 20), ("heldout", HELDOUT)])
async def test_the_gold_turns_and_the_reasoner_are_always_right_and_a_guess_is_not(split, count):
    for index in range(count):
        task = problems(split)[index]
        told, reward, info = await play(small(**PLAYED), task, reasoner())
        assert reward == 1.0
        assert info["reward_parts"] == {"right": 1.0, "cells": float(len(task.payload["cells"]))}
        assert told[-1] == str(task.payload["answer"])
        for nothing in (reasoner(give_up=1.0), lambda *_: Turn(text="Done.")):
            _, reward, _ = await play(small(**PLAYED), task, nothing)
            assert reward == 0.0
        async with as_async(small(**PLAYED)) as runner:
            await runner.areset(options={"task": task})
            terminated = False
            while not terminated:
                _, reward, terminated, *_ = await runner.astep(await runner.agold())
        assert reward == 1.0


@pytest.mark.sandbox
@pytest.mark.timeout(120)
async def test_expressions_are_graded_and_an_interpreter_works_them_out():
    pytest.importorskip("math_verify")
    task = TaskRow(key="k", prompt="The square root of one half?", payload={"answer": r"\frac{\sqrt{2}}{2}"})
    async with as_async(ReTool()) as runner:
        messages, _ = await runner.areset(options={"task": task})
        assert messages[0].role == "system"
        told, *_ = await runner.astep(run("from fractions import Fraction\nx = Fraction(1, 2)", call=0))
        assert told[0].content == "(no output)"
        told, *_ = await runner.astep(run("float(x) ** 0.5", call=1))
        assert told[0].content == "0.7071067811865476"
        _, reward, *_ = await runner.astep(boxed(r"1/\sqrt{2}"))
        assert reward == 1.0


@pytest.mark.sandbox
async def test_whatever_code_does_the_agent_is_told_and_the_episode_goes_on():
    kernel = {"cell_timeout_s": 0.5, "interrupt_grace_s": 0.5}
    async with as_async(ReTool(rubric="agar.examples.retool.reward:NUMBERS", kernel=kernel)) as runner:
        await runner.areset(options={"task": problems("train")[0]})
        for code, said in (
            ("while True: pass", "[The cell was ended after 0.5 s.]"),
            ("import os; os._exit(1)", "The interpreter died (exit status 1)"),
            ("for _ in range(100): print('x' * 1_048_576)", "bytes left out"),
            ("import os; os.write(1, bytes(range(256)))", "\ufffd"),
            ("\0", "null bytes"),
            ("x = '\ud800'", "half a surrogate pair"),
            ("raise ValueError(chr(0xD800))", "ValueError: ?"),
        ):
            messages, reward, terminated, truncated, _ = await runner.astep(run(code, call=0))
            assert said in messages[0].content
            assert (reward, terminated, truncated) == (0.0, False, False)
        *_, terminated, _, info = await runner.astep("17")
        assert terminated
        assert info["reward_parts"]["right"] == 0.0


@pytest.mark.sandbox
async def test_a_sandbox_without_an_interpreter_excludes_the_episode():
    async with as_async(small(kernel={"python": "no-such-python"})) as runner:
        await runner.areset(options={"task": problems("train")[0]})
        *_, truncated, info = await runner.astep(run("1", call=0))
        assert truncated
        assert info["failure"] is Outcome.INFRA_ERROR


async def test_a_task_without_an_answer_is_an_environments_failure():
    async with as_async(make("ReToolSmall-v0", **PLAYED)) as runner:
        with pytest.raises(EnvError, match="no 'answer' in its payload"):
            await runner.areset(options={"task": TaskRow(key="k", prompt="?")})


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_fit_to_train_in():
    report = check_env("agar.examples.retool.env:ReToolSmall-v0")
    assert report.ok, str(report)
