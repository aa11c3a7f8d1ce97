"""Settings of building an index, and of searching it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from agar.config import BaseConfig
from agar.tool_servers.config import ServiceConfig

Mode = Literal["lexical", "dense", "hybrid"]


class EmbedderConfig(BaseConfig):
    """A model that turns texts into vectors."""

    model: Path
    """A Hugging Face model folder with a tokenizer: BERT, E5, BGE and the like."""
    query_prefix: str = ""
    """Put before every query; E5 wants `query: `."""
    passage_prefix: str = ""
    """Put before every passage; E5 wants `passage: `."""
    pooling: Literal["mean", "first"] = "mean"
    """What of the last layer stands for a text: the mean of its tokens (E5), or its first token (BGE)."""
    max_tokens: int = Field(256, ge=8)
    """Longer texts are cut."""
    texts_per_batch: int = Field(64, ge=1)
    """Texts that go through the model at once. No part of an index, as `device`: changing it builds none again."""
    device: str = "cpu"
    """Where the model runs: `cpu`, `cuda`, `cuda:1`."""


class DenseConfig(BaseConfig):
    """An index of vectors."""

    embedder: EmbedderConfig
    """What makes them; queries go through the same model."""
    structure: Literal["flat", "hnsw"] = "flat"
    """`flat` compares with every passage, exactly; `hnsw` walks a graph of neighbours, faster and nearly exact."""
    neighbours: int = Field(32, ge=4, le=128)
    """Edges of a passage in the graph (`hnsw`)."""
    effort: int = Field(128, ge=8)
    """Candidates kept while the graph is built and walked (`hnsw`): more finds more and takes longer."""


class IndexConfig(BaseConfig):
    """What is built of a corpus."""

    corpus: Path
    """A `.jsonl` or `.parquet` file of passages."""
    lexical: bool = True
    """Whether to index words."""
    dense: DenseConfig | None = None
    """How to index vectors; None for not."""

    @model_validator(mode="after")
    def _something(self) -> "IndexConfig":
        if not self.lexical and self.dense is None:
            raise ValueError("an index without words needs vectors: set lexical = true, or dense")
        return self


class IndexSource(BaseConfig):
    """An index on this machine."""

    type: Literal["index"] = "index"
    """Marks this source."""
    folder: Path
    """The index; it is built there where `build` is given."""
    build: IndexConfig | None = None
    """What to build where the folder does not hold it yet."""
    mode: Mode = "lexical"
    """Search by words, by vectors, or by both."""
    fused: int = Field(100, ge=1)
    """Passages of each kind that `hybrid` fuses."""
    device: str | None = None
    """Where the embedding model runs while it is searched; where `build` has it run if None, and `cpu` without one."""

    def search_device(self) -> str:
        """The device for searching."""
        building = self.build.dense if self.build is not None else None
        return self.device or (building.embedder.device if building is not None else "cpu")


class RetrieveSource(BaseConfig):
    """A server with the `/retrieve` of Search-R1: another `agar tools serve search`, or anybody's."""

    type: Literal["retrieve"]
    """Marks this source."""
    url: str = Field(pattern=r"^https?://")
    """Of the server, without `/retrieve`."""
    token_variable: str | None = None
    """The environment variable with its token, sent as `Authorization: Bearer`; none is sent where none is named."""
    timeout_s: float = Field(10.0, gt=0)
    """How long one answer may take."""


class WebSource(BaseConfig):
    """A search engine of the web, behind an API like Serper's."""

    type: Literal["web"]
    """Marks this source."""
    url: str = Field("https://google.serper.dev", pattern=r"^https?://")
    """Of the API, without `/search`."""
    key_variable: str = "SERPER_API_KEY"
    """The environment variable with its key, sent as `X-API-KEY`. No setting holds the key itself."""
    timeout_s: float = Field(10.0, gt=0)
    """How long one answer may take."""


class SearchConfig(ServiceConfig):
    """The search service: where passages come from, and what of them is shown."""

    source: Annotated[IndexSource | RetrieveSource | WebSource, Field(discriminator="type")]
    """Where passages come from."""
    count: int = Field(3, ge=1, le=100)
    """Passages that a search gives."""
    text_chars: int = Field(1500, ge=20)
    """The longest text of a passage that an agent is shown; the rest is cut."""
