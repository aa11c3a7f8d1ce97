"""Vectors of texts against the model asked directly."""

import numpy as np
import pytest
import torch
import transformers

from agar.errors import ConfigError
from agar.tool_servers.search.config import EmbedderConfig
from agar.tool_servers.search.embedder import Embedder


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_vector_is_the_pooled_last_layer_whatever_it_is_batched_with(embedder, pooling):
    config = embedder.model_copy(update={"pooling": pooling, "texts_per_batch": 2})
    texts = ["fox", "the quick brown fox jumps over the lazy dog", "sun"]
    vectors = Embedder(config).queries(texts)
    assert vectors.shape == (3, 64)
    assert vectors.dtype == np.float32
    tokenizer = transformers.AutoTokenizer.from_pretrained(config.model)
    model = transformers.AutoModel.from_pretrained(config.model).eval()
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            last = model(**tokenizer(f"query: {text}", return_tensors="pt")).last_hidden_state[0]
        pooled = last.mean(dim=0) if pooling == "mean" else last[0]
        assert vector == pytest.approx((pooled / pooled.norm()).numpy(), abs=1e-5)


def test_queries_and_passages_have_prefixes_of_their_own(embedder):
    made = Embedder(embedder)
    plain = Embedder(embedder.model_copy(update={"query_prefix": "", "passage_prefix": ""}))
    assert made.queries(["fox"]) == pytest.approx(plain.queries(["query: fox"]))
    assert made.passages(["fox"]) == pytest.approx(plain.queries(["passage: fox"]))


def test_long_texts_are_cut_and_broken_ones_embedded(embedder):
    made = Embedder(embedder.model_copy(update={"max_tokens": 8, "query_prefix": ""}))
    assert made.queries(["fox " * 1000]) == pytest.approx(made.queries(["fox " * 8]))
    assert np.isfinite(made.queries(["\ud800", ""])).all()


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no embedding model"):
        Embedder(EmbedderConfig(model=tmp_path))
