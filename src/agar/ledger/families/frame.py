"""What a template writes around the results of tools, as text and as ids."""

from array import array
from collections.abc import Sequence

from agar.ledger.families.marking import Marking
from agar.ledger.tokenizer import Tokenizer


class Frame:
    """The surroundings of some results.

    What stands between two control tokens is encoded by itself. So only the text that a result stands in is encoded
    anew; and a result need not be quoted, since no control token is read out of that text.

    Args:
        written: marked text with slots in the place of the results.
        slot: what stands in their place.
        marking: of the family's tokenizer.
        tokenizer: the tokenizer.

    Attributes:
        count: how many results it is for.
    """

    __slots__ = ("_around", "_ids", "_pieces", "_tokenizer", "count")

    def __init__(self, written: str, slot: str, *, marking: Marking, tokenizer: Tokenizer) -> None:
        self._around, self._tokenizer = written.split(slot), tokenizer
        self.count = len(self._around) - 1
        self._pieces: list[list[str]] = []  # each is what stands around the results in it
        self._ids = [array("i")]  # before the first piece, between two, behind the last
        for part in marking.split(written):
            if slot in part:
                self._pieces.append([marking.unquote(text) for text in part.split(slot)])
                self._ids.append(array("i"))
            elif part:
                self._ids[-1].extend(marking.encode(part))

    def text(self, results: Sequence[str]) -> str:
        """Marked text, with results that are marked text."""
        before, *around = self._around
        return before + "".join([text + after for text, after in zip(results, around, strict=True)])

    def ids(self, results: Sequence[str]) -> "array[int]":
        """The ids, with results as they are.

        Raises:
            LedgerError: a result is not valid Unicode.
        """
        ids, at = self._ids[0][:], 0
        for (text, *around), behind in zip(self._pieces, self._ids[1:], strict=True):
            for after in around:
                text += results[at] + after
                at += 1
            if text:
                ids.extend(self._tokenizer.ids_of(text))
            ids.extend(behind)
        return ids
