"""Which episodes are shown: never more than asked, spread over the files, whole where they fit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.recipe.page.choice import Share, choose


def files(folder: Path, counts: list[int]) -> list[Path]:
    found = []
    for index, count in enumerate(counts):
        found.append(folder / f"step-{index:06d}.jsonl")
        found[-1].write_bytes(b"".join(b"%d:%d\n" % (index, line) for line in range(count)))
    return found


@pytest.mark.parametrize(
    ("counts", "limit", "shown"),
    [
        ([5, 5], 100, [5, 5]),
        ([5, 5], 4, [2, 2]),
        ([1, 9, 9], 9, [1, 4, 4]),
        ([9, 9, 9], 5, [2, 1, 2]),
        ([9, 9, 9, 9], 2, [0, 1, 0, 1]),
        ([0, 3], 2, [0, 2]),
        ([], 3, []),
    ],
)
def test_what_is_shared_out(tmp_path, counts, limit, shown):
    assert [share.shown for share in choose(files(tmp_path, counts), limit)] == shown


@given(st.lists(st.integers(0, 12), max_size=9), st.integers(1, 60))
def test_as_many_as_asked_for_or_all_there_are(tmp_path_factory, counts, limit):
    shares = choose(files(tmp_path_factory.mktemp("files"), counts), limit)
    assert sum(share.shown for share in shares) == min(limit, sum(counts))
    assert all(share.shown <= share.total for share in shares)
    assert [share.total for share in shares] == counts


def test_the_first_lines_are_shown(tmp_path):
    (file,) = files(tmp_path, [3])
    file.write_bytes(file.read_bytes().replace(b"\n", b"\n\n"))
    assert list(Share(file=file, total=3, shown=2).lines()) == [b"0:0", b"0:1"]
