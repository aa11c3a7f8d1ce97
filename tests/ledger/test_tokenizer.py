import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import ConfigError, LedgerError
from agar.ledger.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(model_dir):
    return Tokenizer.load(model_dir)


def test_text_goes_round(tokenizer):
    @given(st.text())
    def check(text):
        assert tokenizer.decode(tokenizer.encode(text)) == text

    check()


def test_ids_are_decoded_as_the_library_decodes_them(tokenizer, model_dir):
    whole = tokenizers.Tokenizer.from_file(str(model_dir / "tokenizer.json"))

    @given(st.lists(st.integers(0, tokenizer.vocabulary_size + 2), max_size=12))
    def check(ids):
        assert tokenizer.byte_level
        assert tokenizer.decode(ids) == whole.decode(ids, skip_special_tokens=False)

    check()


def test_no_text_is_ever_encoded_to_an_added_token(tokenizer):
    marks = st.sampled_from([*tokenizer.added, "<|", "im_end", "|>", "<", ">"])

    @given(st.lists(st.one_of(marks, st.text(max_size=5))).map("".join))
    def check(text):
        assert set(tokenizer.encode(text).tolist()).isdisjoint(tokenizer.added.values())
        assert tokenizer.decode(tokenizer.encode(text)) == text

    check()


def test_added_tokens_are_one_id_when_asked_for(tokenizer):
    assert tokenizer.encode("<|im_end|>", special=True).tolist() == [tokenizer.added["<|im_end|>"]]


def test_text_without_a_utf8_form_is_refused(tokenizer):
    with pytest.raises(LedgerError, match="Unicode"):
        tokenizer.encode("\ud800")


def test_arrays_are_int32(tokenizer):
    assert tokenizer.encode("").dtype == np.int32
    assert tokenizer.encode("cat").dtype == np.int32


def test_a_missing_or_broken_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer"):
        Tokenizer.load(tmp_path)
