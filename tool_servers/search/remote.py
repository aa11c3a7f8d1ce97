"""Passages from elsewhere: a server with `/retrieve`, a search engine of the web."""

import asyncio
import os
from collections.abc import Sequence

from agar.errors import ConfigError, ToolServerError
from agar.tool_servers.link import Link
from agar.tool_servers.search.base import Hit, Passage
from agar.tool_servers.search.config import RetrieveSource, WebSource
from agar.tool_servers.search.wire import RetrieveReply, Scored, WebReply


class RetrieveClient:
    """A `Retriever` over `POST /retrieve`; all queries go in one request.

    Args:
        source: where the server is.

    Raises:
        ConfigError: a variable is named for its token, and not set.
    """

    def __init__(self, source: RetrieveSource) -> None:
        self._source = source
        self._headers: dict[str, str] = {}
        if source.token_variable is not None:
            self._headers["authorization"] = f"Bearer {_secret(source.token_variable, asked_by=source.url)}"

    async def search(self, queries: Sequence[str], *, count: int) -> list[list[Hit]]:
        """See `Retriever.search`."""
        source = self._source
        body = {"queries": list(queries), "topk": count, "return_scores": True}
        url = source.url.rstrip("/")
        async with Link.to(url, headers=self._headers, token_variable=source.token_variable) as link:
            reply = await link.ask("POST", "/retrieve", RetrieveReply, body=body, timeout_s=source.timeout_s)
        if len(reply.result) != len(queries):
            raise ToolServerError(f"{url}/retrieve answered {len(reply.result)} of {len(queries)} queries")
        return [
            [
                Hit(passage=found.document.passage(), score=found.score)
                if isinstance(found, Scored)
                else Hit(passage=found.passage(), score=0.0)
                for found in some[:count]
            ]
            for some in reply.result
        ]


class WebSearch:
    """A `Retriever` over a search engine's API; a request for each query. Scores fall with the place: 1, 1/2, 1/3.

    Args:
        source: where the API is.

    Raises:
        ConfigError: there is no key.
    """

    def __init__(self, source: WebSource) -> None:
        self._source = source
        self._headers = {"x-api-key": _secret(source.key_variable, asked_by=source.url)}

    async def search(self, queries: Sequence[str], *, count: int) -> list[list[Hit]]:
        """See `Retriever.search`."""
        source = self._source
        url = source.url.rstrip("/")
        async with Link.to(url, headers=self._headers, token_variable=source.key_variable) as link:
            replies = await asyncio.gather(*(self._ask(link, query, count) for query in queries))
        return list(replies)

    async def _ask(self, link: Link, query: str, count: int) -> list[Hit]:
        if not query.strip():
            return []
        body = {"q": query, "num": count}
        reply = await link.ask("POST", "/search", WebReply, body=body, timeout_s=self._source.timeout_s)
        return [
            Hit(passage=Passage(id=page.link, title=page.title, text=page.snippet), score=1 / place)
            for place, page in enumerate(reply.organic[:count], start=1)
        ]


def _secret(variable: str, *, asked_by: str) -> str:
    secret = os.environ.get(variable)
    if not secret:
        raise ConfigError(f"{asked_by} asks for a key: set {variable} to it")
    return secret
