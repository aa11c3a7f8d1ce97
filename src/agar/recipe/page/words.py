"""The text of tokens, where the run still has its tokenizer."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.errors import ConfigError, to_install
from agar.recipe.folder import RunFolder
from agar.types import Ids

if TYPE_CHECKING:
    from agar.ledger.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_PART = "\N{REPLACEMENT CHARACTER}"


class Words:
    """Token texts of one policy, collected for the ids that a page shows.

    Args:
        tokenizer: None where there is none; then ids are shown.

    Attributes:
        texts: id to text, of the ids that were asked for.
    """

    def __init__(self, tokenizer: "Tokenizer | None") -> None:
        self._tokenizer = tokenizer
        self.texts: dict[int, str] = {}

    def read(self, ids: Ids) -> dict[int, str]:
        """Note the ids' texts.

        Returns:
            Position to text, where tokens are parts of one character: all of it at the first, nothing at the others.
        """
        if self._tokenizer is None:
            return {}
        values = ids.tolist()
        for token in set(values) - self.texts.keys():
            self.texts[token] = self._decode([token])
        whole: dict[int, str] = {}
        position = 0
        while position < len(values):
            stop = position
            while stop < len(values) and _PART in self.texts[values[stop]]:
                stop += 1
            if stop - position > 1 and _PART not in (text := self._decode(values[position:stop])):
                whole |= {position: text, **dict.fromkeys(range(position + 1, stop), "")}
            position = max(stop, position + 1)
        return whole

    def _decode(self, ids: Sequence[int]) -> str:
        if self._tokenizer is None or min(ids) < 0:
            return ""
        return self._tokenizer.decode(ids)


def tokenizer_of(folder: RunFolder, policy: str, recipe: Mapping[str, Any]) -> "Tokenizer | None":
    """The tokenizer of a policy: its newest checkpoint's, else that of the recipe's model; None if both are gone."""
    try:
        from agar.ledger.tokenizer import Tokenizer
    except ImportError:
        logger.warning("token texts need the tokenizers package: %s; ids are shown", to_install("gateway"))
        return None
    places = [checkpoint.path / policy / "hf" for checkpoint in reversed(folder.checkpoints())]
    if isinstance(model := ((recipe.get("policies") or {}).get(policy) or {}).get("model"), str):
        places.append(Path(model))
    for place in places:
        if not (place / "tokenizer.json").is_file():
            continue
        try:
            return Tokenizer.load(place)
        except (ConfigError, OSError) as error:
            logger.warning("the tokenizer in %s cannot be read (%s)", place, error)
    return None
