"""Hunt-v0: its worlds, its tasks, its grade."""

import itertools
from collections import Counter

import pytest

import agar
from agar.envs.library.hunt import AMOUNTS, BOXES, Hunt, boxes, open_box, split_of, tasks
from agar.envs.runner import as_async
from agar.errors import ConfigError
from agar.sandbox.config import SandboxSpec
from agar.types import ToolCall, Turn


@pytest.fixture
def hunt():
    return Hunt(sandbox=SandboxSpec(backend="fake"))


def follow(content: dict[int, str], start: int) -> tuple[list[int], int]:
    trail = [start]
    while content[trail[-1]].startswith("box "):
        trail.append(int(content[trail[-1]].removeprefix("box ")))
    return trail, int(content[trail[-1]].removeprefix("gold "))


def test_every_trail_leads_from_the_start_in_the_prompt_to_the_gold():
    for task in itertools.islice(tasks("train"), 300):
        start = int(task.prompt.removeprefix("Start at ").removesuffix("."))
        trail, gold = follow(boxes(task), start)
        assert (trail, gold) == (task.payload["trail"], task.payload["gold"])
        assert 1 <= len(trail) <= 4


def test_every_box_exists_and_no_decoy_leads_to_the_right_amount():
    for task in itertools.islice(tasks("heldout"), 200):
        content = boxes(task)
        assert list(content) == list(BOXES)
        for start in set(BOXES) - set(task.payload["trail"]):
            trail, gold = follow(content, start)
            assert gold != task.payload["gold"]
            assert len(trail) <= 4


def test_trails_of_every_length_are_about_equally_frequent():
    lengths = Counter(len(task.payload["trail"]) for task in itertools.islice(tasks("train"), 2000))
    assert set(lengths) == {1, 2, 3, 4}
    assert min(lengths.values()) > 400


def test_no_heldout_trail_is_in_the_train_split():
    def trails(split):
        return {(*t.payload["trail"], t.payload["gold"]) for t in itertools.islice(tasks(split), 4096)}

    train, heldout = trails("train"), trails("heldout")
    assert not train & heldout
    assert len(heldout) > 3000
    assert all(split_of(list(trail), gold) == "train" for *trail, gold in train)


def test_an_amount_tells_nothing_about_the_split_and_no_amount_is_frequent():
    amounts = Counter(task.payload["gold"] for task in itertools.islice(tasks("heldout"), 4096))
    assert set(amounts) == set(AMOUNTS)
    assert max(amounts.values()) / 4096 < 0.03  # so a constant answer earns less than that


def test_an_unknown_split_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="train, heldout"):
        tasks("test")


def test_a_foreign_task_is_refused():
    with pytest.raises(ConfigError, match="needs trail, gold and seed"):
        boxes(agar.TaskRow(key="x"))


async def test_following_the_trail_and_saying_the_amount_earns_one(hunt):
    task = next(t for t in tasks("train") if len(t.payload["trail"]) == 3)
    async with as_async(hunt) as env:
        observation, _ = await env.areset(options={"task": task})
        assert [m.role for m in observation] == ["system", "user"]
        for call, number in enumerate(task.payload["trail"]):
            observation, reward, terminated, truncated, _ = await env.astep(open_box(number, call=call))
            assert (reward, terminated, truncated) == (0.0, False, False)
        assert observation[0].text == f"gold {task.payload['gold']}"
        _, reward, terminated, _, info = await env.astep(f" {task.payload['gold']}\n")
        assert (reward, terminated, info["reward_parts"]) == (1.0, True, {"gold": 1.0})
        assert not hunt.sb.started


@pytest.mark.parametrize("answer", ["", "no idea", "{gold} or 11", "gold {gold}", "0{gold}", "{gold}.0", "-{gold}"])
async def test_anything_but_exactly_the_amount_earns_nothing(hunt, answer):
    task = tasks("train")[0]
    async with as_async(hunt) as env:
        await env.areset(options={"task": task})
        _, reward, terminated, _, _ = await env.astep(answer.format(gold=task.payload["gold"]))
        assert (reward, terminated) == (0.0, True)


async def test_an_episode_that_opens_no_box_makes_no_sandbox(hunt, monkeypatch):
    monkeypatch.setattr(hunt, "make_sandbox", lambda: pytest.fail("a sandbox was made"))
    async with as_async(hunt) as env:
        await env.areset(seed=1)
        await env.astep("11")


async def test_a_failing_command_is_answered_with_its_exit_code(hunt):
    async with as_async(hunt) as env:
        await env.areset(seed=1)
        for command, text in [("cat 9", "exit 1"), ("fly", "exit 127")]:
            observation, *_ = await env.astep(
                Turn(tool_calls=(ToolCall(id="a", name="sh", arguments={"command": command}),))
            )
            assert (observation[0].text, observation[0].tool_call_id) == (text, "a")


async def test_long_output_is_cut(hunt):
    async with as_async(hunt) as env:
        await env.areset(seed=1)
        command = "cat " + " ".join(str(number) for number in BOXES)
        observation, *_ = await env.astep(
            Turn(tool_calls=(ToolCall(id="a", name="sh", arguments={"command": command}),))
        )
        assert len(observation[0].text) == hunt.output_chars + len("...")


@pytest.mark.sandbox
async def test_the_same_episode_in_a_real_sandbox():
    task = next(t for t in tasks("heldout") if len(t.payload["trail"]) == 4)
    async with as_async(agar.make("Hunt-v0")) as env:
        await env.areset(options={"task": task})
        for call, number in enumerate(task.payload["trail"]):
            observation, *_ = await env.astep(open_box(number, call=call))
        assert observation[0].text == f"gold {task.payload['gold']}"
        observation, *_ = await env.astep(
            Turn(tool_calls=(ToolCall(id="a", name="sh", arguments={"command": "ls | wc -l; whoami"}),))
        )
        assert observation[0].text.split()[0] == str(len(BOXES))
        _, reward, *_ = await env.astep(str(task.payload["gold"]))
        assert reward == 1.0


@pytest.mark.sandbox
async def test_a_command_that_hangs_is_killed_and_the_agent_is_told():
    env = Hunt()
    env.command_timeout_s = 0.5
    async with as_async(env) as runner:
        await runner.areset(seed=1)
        observation, *_ = await runner.astep(
            Turn(tool_calls=(ToolCall(id="a", name="sh", arguments={"command": "sleep 60"}),))
        )
    assert observation[0].text == "killed (timeout)"
