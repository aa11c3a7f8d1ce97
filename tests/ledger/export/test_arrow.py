"""Without pyarrow there is one line that says how to get it."""

import sys

import pytest

from agar.errors import MissingExtraError
from agar.ledger.export.arrow import arrow


def test_a_missing_pyarrow_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"\.\[data\]"):
        arrow()
