"""A toy embedding model, made on the spot: for tests, and for trying dense search where there is no model."""

from collections.abc import Iterable
from pathlib import Path

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_NUMBERS = 64


def make_embedder(folder: Path, texts: Iterable[str], *, seed: int = 1) -> Path:
    """Write a random BERT of one layer that knows the words of some texts.

    Its vectors mean nothing, yet texts with the same words have near ones: each is the mean of random vectors of words.

    Args:
        folder: made if missing.
        texts: whose words it knows.
        seed: of the weights.

    Returns:
        `folder`, a Hugging Face model folder.

    Raises:
        ImportError: torch or transformers is not installed.
    """
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    split = pre_tokenizers.Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text.lower())})
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = split
    shape = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=_NUMBERS,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=_NUMBERS,
        max_position_embeddings=512,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(shape)
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.zero_()  # the order of words would drown which words they are
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return folder
