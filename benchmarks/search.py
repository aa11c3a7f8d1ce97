"""How many lexical queries a second, and whether they find what exact arithmetic finds.

    python benchmarks/search.py [--passages 60000] [--queries 4000] [--out FILE]

The corpus is drawn from words as frequent as Zipf's law has it, 60 to 120 a passage; a query is six words of one
passage. Exact BM25 is worked out with numpy over all passages; recall is the share of its best three that are found.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agar.tool_servers.search import lexical

VOCABULARY = 40_000
CHECKED = 300
K1, B = 1.2, 0.75

Words = npt.NDArray[np.int64]


def corpus(passages: int, rng: np.random.Generator) -> list[Words]:
    """The words of each passage, by number."""
    weights = 1 / (np.arange(1, VOCABULARY + 1) + 2.7)
    lengths = rng.integers(60, 121, size=passages)
    drawn = rng.choice(VOCABULARY, size=int(lengths.sum()), p=weights / weights.sum())
    return np.split(drawn, np.cumsum(lengths)[:-1])


def spelt(words: Words) -> str:
    """Words of letters that no stemmer changes."""
    return " ".join("".join(chr(97 + int(digit)) for digit in f"{word:05d}") + "q" for word in words)


class Exact:
    """BM25 without an index.

    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009).
    """

    def __init__(self, passages: list[Words]) -> None:
        self._lengths = np.array([len(words) for words in passages], dtype=np.float64)
        words = np.concatenate(passages)
        rows = np.repeat(np.arange(len(passages)), self._lengths.astype(np.int64))
        order = np.argsort(words, kind="stable")
        self._rows = rows[order]
        self._starts = np.searchsorted(words[order], np.arange(VOCABULARY + 1))

    def best(self, query: Words, count: int) -> set[int]:
        """The best passages."""
        scores = np.zeros(len(self._lengths))
        for word in set(query.tolist()):
            holders = self._rows[self._starts[word] : self._starts[word + 1]]
            often = np.bincount(holders, minlength=len(scores)).astype(np.float64)
            holding = np.count_nonzero(often)
            idf = math.log(1 + (len(scores) - holding + 0.5) / (holding + 0.5))
            norm = K1 * (1 - B + B * self._lengths / self._lengths.mean())
            scores += idf * often * (K1 + 1) / (often + norm)
        return set(np.argsort(-scores, kind="stable")[:count].tolist())


def main() -> int:
    """Build, search, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--passages", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=4_000)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    passages = corpus(options.passages, rng)
    queries = [rng.choice(passages[int(rng.integers(len(passages)))], size=6) for _ in range(options.queries)]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        lexical.build(Path(folder), map(spelt, passages))
        build_s = time.perf_counter() - began
        size_mib = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
        index = lexical.LexicalIndex(Path(folder))
        asked = [spelt(query) for query in queries]
        index.rank(asked[:100], count=3)
        began, worked = time.perf_counter(), time.process_time()
        ranked = index.rank(asked, count=3)
        wall_s, processor_s = time.perf_counter() - began, time.process_time() - worked
    exact = Exact(passages)
    found = [
        len({row for row, _ in ranking} & exact.best(query, 3))
        for query, ranking in zip(queries[:CHECKED], ranked, strict=False)
    ]
    numbers = {
        "passages": options.passages,
        "build_s": build_s,
        "index_mib": size_mib,
        "queries_per_s": len(queries) / wall_s,
        "queries_per_processor_s": len(queries) / processor_s,
        "recall_at_3": sum(found) / (3 * len(found)),
    }
    for name, value in numbers.items():
        print(f"{name:<24} {value:.4g}")
    if options.out:
        options.out.write_text(json.dumps(numbers, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
