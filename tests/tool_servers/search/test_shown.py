"""What an agent reads."""

from agar.tool_servers.search.base import Hit, Passage
from agar.tool_servers.search.shown import shown


def hit(text, title=""):
    return Hit(passage=Passage(id="1", title=title, text=text), score=1.0)


def test_passages_are_numbered_with_their_titles():
    assert shown([hit("Quick.", "Fox"), hit("Lazy.")], text_chars=100) == "[1] Fox\nQuick.\n\n[2] Lazy."


def test_long_texts_are_cut_and_say_so():
    assert shown([hit("x" * 50)], text_chars=20) == "[1] " + "x" * 20 + "..."
    assert shown([hit("x" * 20)], text_chars=20) == "[1] " + "x" * 20


def test_nothing_is_said_to_be_nothing():
    assert shown([], text_chars=20) == "nothing found"
