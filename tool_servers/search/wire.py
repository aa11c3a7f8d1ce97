"""The bodies of `POST /retrieve`, as Search-R1 and the programs that follow it have them."""

from pydantic import BaseModel, Field

from agar.tool_servers.search.base import Hit, Passage


class RetrieveRequest(BaseModel):
    """Queries, and how many passages for each."""

    queries: list[str] = Field(max_length=1024)
    """What is asked."""
    topk: int | None = Field(None, ge=1, le=100)
    """How many passages for each query; the server's own number if None."""
    return_scores: bool = False
    """Whether to send scores along."""


class Document(BaseModel):
    """A passage: its title in quotation marks on the first line of `contents`, then its text."""

    id: str | int = ""
    contents: str

    @classmethod
    def of(cls, passage: Passage) -> "Document":
        """A passage, as it goes over the wire."""
        return cls(id=passage.id, contents=f'"{passage.title}"\n{passage.text}' if passage.title else passage.text)

    def passage(self) -> Passage:
        """The passage that came over the wire; a single line is its text."""
        title, line, text = self.contents.partition("\n")
        return Passage(id=str(self.id), title=title.strip('"') if line else "", text=text if line else title)


class Scored(BaseModel):
    """A passage with its score."""

    document: Document
    score: float

    @classmethod
    def of(cls, hit: Hit) -> "Scored":
        """A hit, as it goes over the wire."""
        return cls(document=Document.of(hit.passage), score=hit.score)


class RetrieveReply(BaseModel):
    """The passages of each query, the best first."""

    result: list[list[Scored | Document]]


class WebResult(BaseModel):
    """A page that was found."""

    title: str = ""
    link: str = ""
    snippet: str = ""


class WebReply(BaseModel):
    """What a search engine's API answers, as far as it is read."""

    organic: list[WebResult]
