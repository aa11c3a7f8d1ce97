"""Search by words: BM25 over an index of tantivy's, which is mapped into memory."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.errors import ConfigError, MissingExtraError, ToolServerError, to_install

if TYPE_CHECKING:
    from tantivy import TextAnalyzer

Ranked = list[tuple[int, float]]
"""Passages by number with their scores, the best first."""

_ANALYZER = "agar"
_BODY, _ROW = "body", "row"
_WRITER_BYTES = 256 * 1024 * 1024
_LONGEST_WORD = 64
_MOST_WORDS = 256


class LexicalIndex:
    """BM25 (k1 = 1.2, b = 0.75) over the words of title and text, lower-cased and stemmed as English.

    A passage's length is kept in a byte, so scores differ a little from exact arithmetic.
    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009).

    Args:
        folder: where `build` put it.

    Raises:
        ConfigError: there is no index.
        MissingExtraError: tantivy is not installed.
    """

    def __init__(self, folder: Path) -> None:
        tantivy = _tantivy()
        try:
            index = tantivy.Index.open(str(folder))
        except ValueError as error:
            raise ConfigError(f"{folder} holds no lexical index ({error}): build it again") from error
        self._schema = index.schema
        self._searcher = index.searcher()
        self._analyzer = _analyzer()

    def rank(self, queries: Sequence[str], *, count: int) -> list[Ranked]:
        """The best passages for each query; a query without a known word has none.

        Raises:
            ToolServerError: the index cannot be read any more.
        """
        return [self._rank(query, count) for query in queries]

    def _rank(self, query: str, count: int) -> Ranked:
        tantivy = _tantivy()
        words = list(dict.fromkeys(words_of(self._analyzer, query)))[:_MOST_WORDS]
        terms = [(tantivy.Occur.Should, tantivy.Query.term_query(self._schema, _BODY, word)) for word in words]
        if not terms:
            return []
        try:
            hits = self._searcher.search(tantivy.Query.boolean_query(terms), count, count=False).hits
            rows = self._searcher.fast_field_values(_ROW, [address for _, address in hits])
        except ValueError as error:
            raise ToolServerError(f"the lexical index cannot be searched: {error}") from error
        return [(int(row), float(score)) for row, (score, _) in zip(rows, hits, strict=True)]


def build(folder: Path, contents: Iterable[str]) -> None:
    """Index texts; the number of each is its place among them.

    Raises:
        MissingExtraError: tantivy is not installed.
    """
    tantivy = _tantivy()
    schema = (
        tantivy.SchemaBuilder()
        .add_text_field(_BODY, tokenizer_name=_ANALYZER, index_option="freq")
        .add_unsigned_field(_ROW, fast=True)
        .build()
    )
    index = tantivy.Index(schema, path=str(folder))
    index.register_tokenizer(_ANALYZER, _analyzer())
    writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)  # one thread: the same index each time
    for row, text in enumerate(contents):
        document = tantivy.Document()
        document.add_text(_BODY, text)
        document.add_unsigned(_ROW, row)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()


def words_of(analyzer: "TextAnalyzer", text: str) -> list[str]:
    """The words of a text, as they are indexed; half surrogate pairs, which no text in UTF-8 holds, separate words."""
    return list(analyzer.analyze(re.sub(r"[\ud800-\udfff]", " ", text)))


def _analyzer() -> "TextAnalyzer":
    tantivy = _tantivy()
    analyzer: TextAnalyzer = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(_LONGEST_WORD))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )
    return analyzer


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise MissingExtraError(f"lexical search needs tantivy: {to_install('search')}") from error
    return tantivy
