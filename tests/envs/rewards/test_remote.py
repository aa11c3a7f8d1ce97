"""A server that grades."""

import pytest

from agar.envs.rewards.remote import remote
from agar.errors import EnvError


async def test_one_and_a_group(serving, told):
    seen = []

    def answer(path, body, headers):
        seen.append(body)
        return 200, {"score": 0.25} if "task" in body else {"scores": [len(body["attempts"]), 0]}

    with serving(answer) as url:
        assert await remote(url)(told("29", answer="29")) == 0.25
        assert await remote(url)((told("a"), told("b"))) == [2, 0]
    assert seen[0]["task"]["payload"] == {"answer": "29"}
    assert [message["role"] for message in seen[0]["messages"]] == ["user", "assistant"]
    assert [attempt["messages"][-1]["content"] for attempt in seen[1]["attempts"]] == ["a", "b"]


@pytest.mark.parametrize("value", [{}, [], 3])
async def test_an_answer_without_a_score_is_an_error(serving, told, value):
    with serving(lambda *_: (200, value)) as url, pytest.raises(EnvError, match="must answer"):
        await remote(url)(told("x"))
