"""Passages over the wire and back."""

import pytest

from agar.tool_servers.search.base import Passage
from agar.tool_servers.search.wire import Document


@pytest.mark.parametrize(
    "passage",
    [
        Passage(id="1", title="Fox", text="Quick."),
        Passage(id="2", title="Fox", text="Two\nlines."),
        Passage(id="3", text="No title."),
    ],
)
def test_a_passage_comes_back_as_it_went(passage):
    assert Document.of(passage).passage() == passage
