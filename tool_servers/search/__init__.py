"""Search over a corpus: lexical, dense and both, in this process or as a service."""

from agar.tool_servers.search.base import Hit, Passage, Retriever

__all__ = ["Hit", "Passage", "Retriever"]
