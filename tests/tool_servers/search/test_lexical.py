"""BM25 against the formula, and queries of every kind."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import ConfigError
from agar.tool_servers.search import lexical

TEXTS = [
    "the quick brown fox",
    "the lazy dog and the lazy cat",
    "foxes are quick, dogs are lazy",
    "copy_tree copies trees",
    "a dog",
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> lexical.LexicalIndex:
    folder = tmp_path_factory.mktemp("lexical")
    lexical.build(folder, TEXTS)
    return lexical.LexicalIndex(folder)


def rows(ranked: lexical.Ranked) -> list[int]:
    return [row for row, _ in ranked]


def test_words_are_found_whatever_their_case_ending_or_punctuation(index):
    fox, copying, dog = index.rank(["FOX!", "copying `tree`?", "dogs"], count=3)
    assert set(rows(fox)) == {0, 2}
    assert rows(copying) == [3]
    assert rows(dog) == [4, 2, 1]  # the shorter the passage, the more a word counts


def test_scores_are_those_of_bm25(tmp_path):
    # Lengths up to 39 words are kept exactly; stems are left alone.
    rng = np.random.default_rng(3)
    words = [f"w{chr(97 + n)}q" for n in range(20)]
    texts = [[words[at] for at in rng.integers(20, size=rng.integers(1, 30))] for _ in range(200)]
    lexical.build(tmp_path, [" ".join(text) for text in texts])
    index = lexical.LexicalIndex(tmp_path)
    mean = sum(map(len, texts)) / len(texts)
    holding = Counter(word for text in texts for word in set(text))

    def score(query: list[str], text: list[str]) -> float:
        total = 0.0
        for word in set(query):
            n, often = holding[word], text.count(word)
            idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            total += idf * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(text) / mean))
        return total

    for query in (["waq"], ["wbq", "wcq"], ["wdq", "wdq", "weq", "wfq"]):
        [ranked] = index.rank([" ".join(query)], count=200)
        exact = {row: score(query, text) for row, text in enumerate(texts) if set(query) & set(text)}
        assert {row: pytest.approx(found, rel=1e-4) for row, found in ranked} == exact
        assert [found for _, found in ranked] == sorted((found for _, found in ranked), reverse=True)


@pytest.mark.parametrize("query", ["", "   ", "?!", "unheard", "\ud800", "\0"])
def test_a_query_without_a_known_word_finds_nothing(index, query):
    assert index.rank([query], count=3) == [[]]


@given(query=st.text(max_size=300))
def test_no_query_is_a_mistake(index, query):
    [ranked] = index.rank([query], count=3)
    assert len(ranked) <= 3


def test_syntax_of_query_languages_is_just_text(index):
    for query in ('fox AND -dog "', "body:fox~2", "(fox OR", "fo*", "+fox^9"):
        index.rank([query], count=2)
    assert rows(index.rank(["-fox"], count=5)[0]) == rows(index.rank(["fox"], count=5)[0])


def test_a_folder_without_an_index_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="no lexical index"):
        lexical.LexicalIndex(tmp_path)
    with pytest.raises(ConfigError, match="no lexical index"):
        lexical.LexicalIndex(tmp_path / "nowhere")
