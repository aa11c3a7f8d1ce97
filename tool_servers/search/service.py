"""Search as a service: one tool for agents, and `/retrieve` for programs."""

import asyncio
from typing import TYPE_CHECKING

from agar.errors import ToolError, ToolServerError
from agar.tool_servers.background import in_thread
from agar.tool_servers.base import Deadline
from agar.tool_servers.search.base import Retriever
from agar.tool_servers.search.config import IndexSource, RetrieveSource, SearchConfig
from agar.tool_servers.search.index import Index, build
from agar.tool_servers.search.remote import RetrieveClient, WebSearch
from agar.tool_servers.search.shown import shown
from agar.tool_servers.search.wire import Document, RetrieveReply, RetrieveRequest, Scored
from agar.tool_servers.service import Service
from agar.tool_servers.tools import tool
from agar.types import Metrics

if TYPE_CHECKING:
    from fastapi import APIRouter

_LONGEST_QUERY = 4000


class Search(Service[SearchConfig]):
    """Finds passages: by words, by meaning, or both; on this machine, behind `/retrieve`, or in the web."""

    settings = SearchConfig

    def __init__(self, config: SearchConfig) -> None:
        """Nothing is loaded before `open`."""
        super().__init__(config)
        self._retriever: Retriever | None = None
        self._opening = asyncio.Lock()
        self._queries = 0

    async def open(self) -> None:
        """Open the index; where its source says so, build it first.

        Raises:
            ConfigError: there is no index or key, or the corpus cannot be read.
            MissingExtraError: a package is not installed.
        """
        async with self._opening:
            if self._retriever is None:
                self._retriever = await in_thread(self._open, name="agar-search-open")

    async def close(self) -> None:
        """Let go of the index; its files are unmapped when nobody reads them any more."""
        self._retriever = None

    @tool
    async def search(self, query: str, deadline: Deadline) -> str:
        """Search a library of passages.

        A deadline that passes is told to the agent where the search is made here. Where another server is asked, it is
        that one's failure, and none of the agent's: it may well be down.
        """
        if len(query) > _LONGEST_QUERY:
            raise ToolError(f"a query may have {_LONGEST_QUERY} characters, this one has {len(query)}: ask for less")
        source = self.config.source
        try:
            async with asyncio.timeout(deadline) as clock:
                [hits] = await self._opened().search([query], count=self.config.count)
        except TimeoutError as error:
            if not clock.expired():
                raise
            if isinstance(source, IndexSource):
                raise ToolError(f"search: no result within {deadline:g} s") from error
            raise ToolServerError(f"{source.url} gave no answer within {deadline:g} s: is it up?") from error
        self._queries += 1
        return shown(hits, text_chars=self.config.text_chars)

    def routes(self) -> "APIRouter":
        """`POST /retrieve`, as programs that were written for Search-R1's server call it."""
        from fastapi import APIRouter

        router = APIRouter(tags=["search"])

        @router.post("/retrieve")
        async def retrieve(request: RetrieveRequest) -> RetrieveReply:
            """Passages for many queries at once."""
            found = await self._opened().search(request.queries, count=request.topk or self.config.count)
            self._queries += len(request.queries)
            return RetrieveReply(
                result=[
                    [Scored.of(hit) if request.return_scores else Document.of(hit.passage) for hit in hits]
                    for hits in found
                ]
            )

        return router

    def metrics(self) -> Metrics:
        """How many queries were answered."""
        return {"search/queries": float(self._queries)}

    def _open(self) -> Retriever:
        source = self.config.source
        if isinstance(source, IndexSource):
            if source.build is not None:
                build(source.build, source.folder)
            return Index(source.folder, mode=source.mode, fused=source.fused, device=source.search_device())
        return RetrieveClient(source) if isinstance(source, RetrieveSource) else WebSearch(source)

    def _opened(self) -> Retriever:
        assert self._retriever is not None, "open() comes first"
        return self._retriever
