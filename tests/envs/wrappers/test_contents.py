"""Rewards shaped, observations cut, episodes written down."""

import json

import pytest

from agar.envs.wrappers import Record, ShapeReward, TruncateObservation
from agar.envs.wrappers.observation import shortened
from agar.types import ImagePart, Message, TaskRow, TextPart


async def test_a_shaped_reward_keeps_the_original_beside_it(env, play):
    shaped = ShapeReward(env, lambda turn, result: result[1] - 0.1 * len(turn.text))
    _, results = await play(shaped, "abc")
    assert results[0][1] == pytest.approx(0.7)
    assert results[0][4] == {"unshaped_reward": 1.0}


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        ("start", "abcd\n[6 characters left out]"),
        ("end", "[6 characters left out]\nghij"),
        ("both", "ab\n[6 characters left out]\nij"),
    ],
)
def test_a_long_text_is_cut_and_says_so(keep, text):
    assert shortened("abcdefghij", 4, keep) == text
    assert shortened("abcd", 4, keep) == "abcd"


async def test_observations_of_every_form_are_cut(env, play):
    cut = TruncateObservation(env, max_chars=3)
    first, results = await play(cut, "x")
    assert first.startswith("tur\n[1 character")
    assert results[0][0][0].text == "tur\n[3 characters left out]"
    image = ImagePart(url="data:image/png;base64,aaaaaaaa")
    message = Message(role="tool", tool_call_id="1", content=(TextPart(text="abcdef"), image))
    (short,) = cut._cut([message])
    assert (short.role, short.tool_call_id, short.content[1]) == ("tool", "1", image)
    assert short.text == "abc\n[3 characters left out]"


async def test_every_episode_is_a_line(env, play, tmp_path):
    path = tmp_path / "new" / "episodes.jsonl"
    recorded = Record(env, path)
    await play(recorded, *"abcde", options={"task": TaskRow(key="t/1")})
    await play(recorded, "a")
    recorded.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["task"], line["end"], len(line["turns"])) for line in lines] == [
        ("t/1", "terminated", 5),
        (None, "left", 1),
    ]
    assert lines[0]["heard"] == "turn"
    turn = lines[0]["turns"][0]
    assert (turn["said"]["text"], turn["reward"], turn["heard"]) == ("a", 1.0, "turn 1")
