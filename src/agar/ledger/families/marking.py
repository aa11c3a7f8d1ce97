"""Marked text: a string in which a control token can only be a control token.

Ids and templates meet in it. Added tokens stand as themselves; everything foreign (what users, tools, web pages and
models wrote with ordinary tokens) is quoted, so that no control token can be read out of it, not even together with
the text that a template puts around it. Both directions are exact.
"""

import re
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from agar.errors import LedgerError
from agar.ledger.tokenizer import Tokenizer
from agar.types import Ids

QUOTE = "\ufdd0"
"""Begins and ends a quoted character, as its number in hexadecimal. A Unicode noncharacter: no text should hold one."""
SLOTS = ("\ufdd1", "\ufdd2", "\ufdd3")
"""Noncharacters that a caller may put into a template and find again in what it renders; foreign ones are quoted."""
_LAST = 16  # ids in which the last control token nearly always is


class Marking:
    """Marked text over one tokenizer.

    Args:
        tokenizer: encodes ordinary text without its added tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._names = {id: text for text, id in tokenizer.added.items()}
        tokens = _any_of(tokenizer.added)
        self._token = re.compile(f"({tokens})")
        # Every place where a token begins, also inside another one.
        self._hidden = re.compile(f"(?={tokens}).|[{QUOTE}{''.join(SLOTS)}]", re.DOTALL)
        self._quoted = re.compile(f"{QUOTE}([0-9a-f]+){QUOTE}")
        # Most texts hold no character that a token begins with: they cost one search.
        self._first = re.compile("[" + re.escape("".join({QUOTE, *SLOTS, *(t[0] for t in tokenizer.added)})) + "]")
        self._heads = {token[:n] for token in tokenizer.added for n in range(1, len(token))}
        self._longest = max((len(token) for token in tokenizer.added), default=1) - 1
        tails: dict[str, set[str]] = {}
        for tail in (token[n:] for token in tokenizer.added for n in range(1, len(token))):
            tails.setdefault(tail[0], set()).add(tail)
        self._tails = {first: tuple(some) for first, some in tails.items()}

    def quote(self, text: str) -> str:
        """Foreign text as marked text."""
        head = text.lstrip()
        tails = self._tails.get(head[:1])
        if (tails is None or not head.startswith(tails)) and self._first.search(text) is None:
            return text  # as nearly always
        stop = len(text.rstrip())
        start = stop - len(text[:stop].lstrip())
        places: set[int] = set()
        # A template may trim the text and then write the other half of a token right beside it.
        if start < stop and text.startswith(self._tails.get(text[start], ()), start, stop):
            places.add(start)
        if self._first.search(text) is not None:
            places.update(match.start() for match in self._hidden.finditer(text))
            places.update(at for at in range(max(start, stop - self._longest), stop) if text[at:stop] in self._heads)
        if not places:
            return text
        cuts = sorted(places)
        pieces = [text[: cuts[0]]]
        for at, following in zip(cuts, [*cuts[1:], len(text)], strict=True):
            pieces += (f"{QUOTE}{ord(text[at]):x}{QUOTE}", text[at + 1 : following])
        return "".join(pieces)

    def unquote(self, marked: str) -> str:
        """Marked text as people see it; a control token gives its name."""
        if QUOTE not in marked:
            return marked
        return self._quoted.sub(lambda match: chr(int(match[1], 16)), marked)

    def split(self, marked: str) -> list[str]:
        """Plain text and control tokens in turn."""
        return self._token.split(marked)

    def encode(self, marked: str) -> list[int]:
        """The ids: control tokens as such, what is between them as a tokenizer does with plain text.

        Raises:
            LedgerError: the text is not valid Unicode, or a template cut it inside a quote.
        """
        return self._packed(marked).tolist()

    def ids(self, marked: str) -> Ids:
        """`encode` as an array. int32 [n]."""
        return np.array(self._packed(marked), dtype=np.int32)

    def last_token(self, ids: Ids) -> str | None:
        """The last control token of a sequence, by its text; None where there is none."""
        names = self._names
        for id in ids[-_LAST:].tolist()[::-1]:
            if id in names:
                return names[id]
        return next((names[id] for id in ids[:-_LAST].tolist()[::-1] if id in names), None)

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as marked text: only real control tokens stand as themselves."""
        names, decode = self._names, self._tokenizer.decode
        pieces: list[str] = []
        start = 0
        for position in [position for position, id in enumerate(ids) if id in names]:
            if start < position:
                pieces.append(self.quote(decode(ids[start:position])))
            pieces.append(names[ids[position]])
            start = position + 1
        if start < len(ids):
            pieces.append(self.quote(decode(ids[start:])))
        return "".join(pieces)

    def _packed(self, marked: str) -> "array[int]":
        ids = array("i")
        *pieces, last = self.split(marked)
        for plain, token in zip(pieces[::2], pieces[1::2], strict=True):
            if plain:
                ids.extend(self._plain(plain))
            ids.append(self._tokenizer.added[token])
        if last:
            ids.extend(self._plain(last))
        return ids

    def _plain(self, marked: str) -> Sequence[int]:
        if QUOTE not in marked:
            return self._tokenizer.ids_of(marked)
        if QUOTE in self._quoted.sub("", marked):
            raise LedgerError("the chat template cuts texts apart: what it makes of this one cannot be encoded")
        return self._tokenizer.ids_of(self.unquote(marked))


def _any_of(words: Iterable[str]) -> str:
    """A pattern for the longest of the words; they share their beginnings, so that a page full of `<` stays cheap."""
    tree: dict[str, dict] = {}  # type: ignore[type-arg]  # a tree of its own kind
    for word in words:
        node = tree
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return _pattern(tree) if tree else r"(?!)"


def _pattern(node: dict[str, dict]) -> str:  # type: ignore[type-arg]
    options = [re.escape(character) + _pattern(below) for character, below in node.items() if character]
    if not options:
        return ""
    return f"(?:{'|'.join(options)}){'?' if '' in node else ''}"
