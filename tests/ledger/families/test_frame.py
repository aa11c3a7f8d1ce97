import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agar.ledger.families.frame import Frame

SLOT = "\ufdd3"
TEXTS = st.lists(
    st.sampled_from(["<|im_", "end|>", "<|im_end|>", "</tool_response>", "\ufdd0", SLOT, " ", "\n"])
    | st.text(max_size=4),
    max_size=4,
).map("".join)
WRITTEN = {
    "none": "<|im_end|>\nGo on.<|im_start|>",
    "one": f"<|im_end|>\n<tool_response>\n{SLOT}\n</tool_response><|im_end|>\n",
    "beside each other": f"<|im_end|>{SLOT}\n</tool_response>\n<tool_response>\n{SLOT}<|im_end|>",
    "without any token": f"{SLOT}\n{SLOT}",
    "at the ends": f"{SLOT}<|im_end|>\n{SLOT}",
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("name", ["qwen2.5", "qwen3"])  # the marks of a result are tokens in one of them
def test_ids_are_those_of_the_text(family_of, name, written):
    family = family_of(name)
    frame = Frame(written, SLOT, marking=family.marking, tokenizer=family.tokenizer)
    assert frame.count == written.count(SLOT)

    @settings(max_examples=30)
    @given(st.lists(TEXTS, min_size=frame.count, max_size=frame.count))
    def check(texts):
        text = frame.text([family.marking.quote(each) for each in texts])
        assert frame.ids(texts).tolist() == family.marking.encode(text)
        assert family.marking.unquote(text) == "".join(
            piece for pair in zip(written.split(SLOT), [*texts, ""], strict=True) for piece in pair
        )

    check()
