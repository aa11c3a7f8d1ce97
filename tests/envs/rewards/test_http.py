"""What may pass is tried again; what will not is an error that says what came."""

import pytest

from agar.envs.rewards.http import post_json
from agar.errors import EnvError


async def ask(url, retries=2):
    return await post_json(url, {"n": 1}, headers={"x-key": "k"}, timeout_s=10.0, retries=retries)


async def test_an_answer_is_read(serving):
    with serving(lambda path, body, headers: (200, {"n": body["n"] + 1, "key": headers["x-key"]})) as url:
        assert await ask(url) == {"n": 2, "key": "k"}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_may_pass_is_tried_again(serving, status):
    left = [status, status, 200]
    with serving(lambda *_: (left.pop(0), {"ok": True})) as url:
        assert await ask(url) == {"ok": True}
        left[:] = [status, status, status]
        with pytest.raises(EnvError, match=f"in 3 tries; the last: status {status}"):
            await ask(url)


async def test_what_will_not_pass_is_not(serving):
    asked = []

    def answer(path, body, headers):
        asked.append(1)
        return 404, {"error": "no such model"}

    with serving(answer) as url, pytest.raises(EnvError, match=r"status 404: .*no such model"):
        await ask(url)
    assert len(asked) == 1


async def test_no_json_and_no_server(serving):
    with serving(lambda *_: (200, b"<html>")) as url, pytest.raises(EnvError, match="not JSON"):
        await ask(url)
    with pytest.raises(EnvError, match="ConnectError"):
        await ask(url)
