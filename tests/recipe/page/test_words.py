"""Token texts add up to the decoded text, characters of several tokens included."""

import json
import logging

import numpy as np
import pytest

from agar.recipe.folder import RunFolder
from agar.recipe.page.words import Words, tokenizer_of


def shown(words, ids):
    whole = words.read(ids)
    return "".join(whole.get(position, words.texts[token]) for position, token in enumerate(ids.tolist()))


@pytest.mark.parametrize("text", ["cat 47", "caf\u00e9 \U0001f9ed north", "\u732b\u732b a\u0301\n", ""])
def test_texts_join_to_what_was_encoded(family, text):
    ids = family.tokenizer.encode(text)
    assert shown(Words(family.tokenizer), ids) == text


def test_half_a_character_is_not_hidden(family):
    ids = family.tokenizer.encode("\U0001f9ed")[:2]
    assert "\N{REPLACEMENT CHARACTER}" in shown(Words(family.tokenizer), ids)


def test_ids_that_no_token_has_have_no_text(family):
    words = Words(family.tokenizer)
    words.read(np.array([999_999, -4], np.int32))
    assert words.texts == {999_999: "", -4: ""}


def test_without_a_tokenizer_there_are_no_texts():
    words = Words(None)
    assert words.read(np.array([1, 2], np.int32)) == {}
    assert words.texts == {}


def test_the_newest_checkpoint_comes_before_the_recipes_model(folder, family, tmp_path):
    recipe = json.loads(folder.recipe.read_text())
    assert tokenizer_of(folder, "main", recipe) is not None
    assert tokenizer_of(folder, "other", recipe) is None
    for step in (1, 2):
        place = folder.path / "checkpoints" / f"step-{step:06d}" / "main" / "hf"
        place.mkdir(parents=True)
        text = (tmp_path / "model" / "tokenizer.json").read_text()
        (place / "tokenizer.json").write_text(text if step == 1 else text.replace("<|endoftext|>", "<|step2|>"))
    found = tokenizer_of(folder, "main", recipe)
    assert found is not None
    assert "<|step2|>" in found.added


def test_a_tokenizer_that_cannot_be_read_is_passed_over(folder, tmp_path, caplog):
    (tmp_path / "model" / "tokenizer.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert tokenizer_of(RunFolder.open(folder.path), "main", json.loads(folder.recipe.read_text())) is None
    assert "cannot be read" in caplog.text
