import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.ledger.families.marking import QUOTE, SLOTS, Marking
from agar.ledger.families.model import ChatModel

NAMES = ("qwen3", "glm-4.5", "deepseek-r1")


@pytest.fixture(scope="module", params=NAMES)
def marking(model_of, request) -> Marking:
    return Marking(ChatModel.load(model_of(request.param)).tokenizer)


def hostile(tokenizer):
    """Text around control tokens: whole ones, halves, doubled letters, our own quotes."""
    tokens = sorted(tokenizer.added)
    pieces = [t[:n] for t in tokens for n in (1, 2, len(t) // 2, len(t) - 1, len(t))]
    pieces += [t[n:] for t in tokens for n in (1, len(t) // 2, len(t) - 1)]
    return st.lists(st.sampled_from([*pieces, QUOTE, *SLOTS, " ", "\n", "a", "é", "3c", "<", ">"]), max_size=8).map(
        "".join
    )


def test_quoting_is_undone_exactly_and_holds_no_token(marking):
    tokens = sorted(marking._tokenizer.added)

    @given(hostile(marking._tokenizer))
    def check(text):
        marked = marking.quote(text)
        assert marking.unquote(marked) == text
        assert not any(token in marked for token in tokens)
        assert not set(SLOTS) & set(marked)

    check()


def test_no_token_appears_where_quoted_text_meets_a_template(marking):
    """Whatever a template writes before and after it, even if it trims it first."""
    tokens = sorted(marking._tokenizer.added, key=len)

    @given(hostile(marking._tokenizer), st.data())
    def check(text, data):
        token = data.draw(st.sampled_from(tokens))
        cut = data.draw(st.integers(0, len(token)))
        for inner in (marking.quote(text), marking.quote(text).strip()):
            written = [*token[:cut]], [*token[cut:]]
            whole = "".join(written[0]) + inner + "".join(written[1])
            found = [m.span() for t in tokens for m in re.finditer(re.escape(t), whole)]
            inside = range(cut, cut + len(inner))
            assert not any(start < inside.stop and stop > inside.start for start, stop in found if inner)

    check()


def test_ids_survive_the_way_through_marked_text(marking):
    tokenizer = marking._tokenizer
    controls = sorted(tokenizer.added.values())

    @given(st.lists(st.one_of(st.sampled_from(controls), hostile(tokenizer))))
    def check(pieces):
        ids = [i for piece in pieces for i in ([piece] if isinstance(piece, int) else tokenizer.ids_of(piece))]
        assert [i for i in marking.encode(marking.decode(ids)) if i in controls] == [i for i in ids if i in controls]
        assert marking.unquote(marking.decode(ids)) == tokenizer.decode(ids)

    check()


def test_encoding_is_the_tokenizers_where_nothing_is_quoted(marking):
    text = "".join(f"a {token} b\n" for token in marking._tokenizer.added)
    assert marking.encode(text) == marking._tokenizer.encode(text, special=True).tolist()
    assert marking.ids(text).dtype == "int32"


def test_the_last_token_of_a_sequence(marking):
    token = next(iter(marking._tokenizer.added))
    assert marking.last_token(marking.ids(f"{token} and more")) == token
    assert marking.last_token(marking.ids("none")) is None


def test_a_page_full_of_angle_brackets_is_quoted_in_time_that_grows_with_it(marking):
    def seconds(text):
        start = time.process_time()
        marking.quote(text)
        return time.process_time() - start

    page = "<p>hello</p> <|im_ </tool " * 2000
    assert seconds(page * 10) < 60 * max(seconds(page), 1e-3)
