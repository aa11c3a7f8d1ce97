"""A model whose every reply can be worked out again: from the prompt, and how often that prompt was asked before.

Nothing here reads the ledger. What the ledger claims that an engine sampled is compared with what this model says on
that very prefix, and its log-probs with those of HashLM under the weights of the version that the token names.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agar.ledger.families import Family
from agar.rollout.engines.hashlm import HashLM
from agar.types import Floats, Ids

WORDS = ("cat 47", "box 83\n", " gold", "<|im_end|>", "<tool_call>{}", "é\u2028", "", "  ", "</think>", "<|im_start|>")
CALLS = (
    '{"name":"sh","arguments":{"a":1,"b":[1.5,true,null,"x"]}}',
    '{"name": "sh", "arguments": {"b": {"z": 0, "a": -0.0}, "a": "é"}}',
    '{"name":"sh"}',
    '{"name":"sh","arguments":{"a":"\\ud83d\\ude00 \\u0000"}}',
    '{"name":"sh","arguments":{"a":1e999}}',
    '{"name":"sh","arguments":{"a":123456789012345678901234567890}}',
    '{"name":"sh","arguments":{"a":1,"a":2}}',
    '{"name":"sh","arguments":"cat 47"}',
    "not JSON",
)
_LONGEST_PLAN = 160


class Oracle:
    """Plans replies, and scores them.

    Args:
        family: its control tokens; it encodes what the model says.
        vocabulary_size: of the engine.

    Attributes:
        hold_at: the next new reply stops after so many tokens, until it is given up; None lets it run.
        holding: called when a reply is about to stop.
    """

    def __init__(self, family: Family, vocabulary_size: int) -> None:
        self._family = family
        self._vocabulary_size = vocabulary_size
        self._asked: Counter[bytes] = Counter()
        self._models: dict[str, HashLM] = {}
        self._plans: dict[tuple[bytes, int], list[int]] = {}
        self._scores: dict[tuple[bytes, int, tuple[str, ...]], Floats] = {}
        self.hold_at: int | None = None
        self.holding = lambda: None

    def forget(self) -> None:
        """Begin anew: no prompt was asked."""
        self._asked.clear()
        self._plans.clear()
        self._scores.clear()
        self.hold_at = None

    def script(self, prompt: Sequence[int], params: Mapping[str, Any]) -> Sequence[int]:
        """What FakeEngine is to say: a new reply, or the rest of one that was interrupted."""
        key = _key(prompt)
        for said in range(1, min(_LONGEST_PLAN, len(prompt))):
            before = key[: -4 * said]
            for ordinal in range(self._asked.get(before, 0)):
                plan = self._plan(before, ordinal)
                if len(plan) > said and plan[:said] == list(prompt[-said:]):
                    return plan[said:]
        plan = self._plan(key, self._asked[key])
        self._asked[key] += 1
        at, self.hold_at = self.hold_at, None
        if at is None or at + 1 >= min(len(plan), params["max_new_tokens"]):
            return plan
        return _Held(plan, at, self.holding)

    def replies(self, prompt: Ids) -> list[list[int]]:
        """Every reply that was begun on this prompt, uncut."""
        key = _key(prompt)
        return [self._plan(key, ordinal) for ordinal in range(self._asked.get(key, 0))]

    def score(self, prompt: Ids, reply: Ids, weights: Sequence[str]) -> Floats:
        """The log-prob of each token of a reply under the weights that are to have sampled it. float32 [n]."""
        whole = np.concatenate([prompt, reply])
        key = (whole.tobytes(), len(prompt), tuple(weights))
        if key not in self._scores:
            models = [self._models.setdefault(w, HashLM(weights=w, vocab_size=self._vocabulary_size)) for w in weights]
            found = [model.logprob(whole[:end], int(whole[end])) for end, model in enumerate(models, start=len(prompt))]
            self._scores[key] = np.minimum(np.array(found, dtype=np.float32), np.float32(0))
        return self._scores[key]

    def _plan(self, prompt: bytes, ordinal: int) -> list[int]:
        key = (prompt, ordinal)
        if key not in self._plans:
            self._plans[key] = self._think(prompt, ordinal)
        return self._plans[key]

    def _think(self, prompt: bytes, ordinal: int) -> list[int]:
        draw = random.Random(hashlib.blake2b(prompt + b"|%d" % ordinal).digest())
        kind = draw.random()
        if kind < 0.02:
            return []
        if kind < 0.12:  # anything, control tokens included
            ids = [draw.randrange(self._vocabulary_size) for _ in range(draw.randint(1, 10))]
        else:
            ids = self._speech(draw)
        for index, token in enumerate(ids):
            if token in self._family.stop_ids:
                return ids[: index + 1]
        return ids

    def _speech(self, draw: random.Random) -> list[int]:
        tokenizer = self._family.tokenizer
        added = tokenizer.added
        pieces: list[int] = []

        def say(text: str) -> None:
            for token in tokenizer.encode(text).tolist():
                pieces.extend(self._split(token) if draw.random() < split else [token])

        split = draw.choice((0.0, 0.0, 0.1, 0.5))
        if draw.random() < 0.4:
            pieces.append(added["<think>"])
            say("\n" + draw.choice(WORDS) + draw.choice(WORDS) + "\n")
            if draw.random() < 0.95:
                pieces.append(added["</think>"])
                say("\n\n")
        if draw.random() < 0.8:
            say(draw.choice(WORDS) + f"{draw.getrandbits(16):x}" + draw.choice(WORDS))
        for _ in range(draw.choice((0, 0, 1, 1, 2, 3))):
            pieces.append(added["<tool_call>"])
            say("\n" + draw.choice(CALLS) + "\n")
            if draw.random() < 0.97:
                pieces.append(added["</tool_call>"])
        if draw.random() < 0.97:
            pieces.append(self._family.stop_ids[0])
        return pieces

    def _split(self, token: int) -> list[int]:
        """The token's text in single characters: ids that no encoder would give."""
        tokenizer = self._family.tokenizer
        text = tokenizer.decode([token])
        pieces = [piece for character in text for piece in tokenizer.encode(character).tolist()]
        return pieces if tokenizer.decode(pieces) == text else [token]


class _Held(Sequence[int]):
    """A plan that lets its owner know when its token number `at` is sampled and more are to come."""

    def __init__(self, plan: Sequence[int], at: int, holding: Any) -> None:
        self._plan, self._at, self._holding = plan, at, holding

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: Any) -> Any:
        if index == self._at:
            self._holding()
        return self._plan[index]


def _key(ids: Any) -> bytes:
    return np.asarray(ids, dtype="<i4").tobytes()
