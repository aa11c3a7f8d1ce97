"""A server that grades."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agar.envs.rewards.http import post_json
from agar.envs.rubric import Conversation
from agar.errors import EnvError
from agar.ledger.codec import plain
from agar.tool_servers.urls import public


def remote(
    url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 60.0, retries: int = 2
) -> Callable[[Conversation | tuple[Conversation, ...]], Awaitable[Any]]:
    """What a server answers.

    It is posted `{"task": …, "messages": […], "reward": …}` and answers `{"score": 0.5}`; in the group stage
    `{"attempts": [those of each attempt]}`, and it answers `{"scores": [0.5, …]}`.

    Args:
        url: where to post.
        headers: to send along, such as an authorisation.
        timeout_s: of one request.
        retries: how often a request that failed is made again.
    """

    async def score(told: Conversation | tuple[Conversation, ...]) -> Any:
        single = isinstance(told, Conversation)
        body = _body(told) if isinstance(told, Conversation) else {"attempts": [_body(each) for each in told]}
        answer = await post_json(url, body, headers=headers or {}, timeout_s=timeout_s, retries=retries)
        wanted = "score" if single else "scores"
        if not isinstance(answer, dict) or wanted not in answer:
            raise EnvError(f'{public(url)} must answer {{"{wanted}": …}}, got {str(answer)[:200]}')
        return answer[wanted]

    return score


def _body(told: Conversation) -> dict[str, Any]:
    return {"task": plain(told.task), "messages": plain(told.messages), "reward": told.reward}
