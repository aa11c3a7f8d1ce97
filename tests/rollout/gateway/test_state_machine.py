"""Whatever clients do to the gateway over HTTP, every trained token has the prefix it was sampled on.

`make verify` plays the same machine for ten times as many steps.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase
from unruly.machine import RULES, play

import agar.ledger.emission as emission_module
from agar.errors import AgarError
from agar.ledger.forest import Forest
from agar.ledger.tokenizer import Tokenizer
from agar.ledger.trace import Trace
from agar.rollout.gateway.session import GatewaySession
from agar.types import Sampled


@pytest.fixture(scope="module")
def scores():
    return []


@pytest.mark.timeout(300)  # a few seconds of one core each, but the cores are shared
@pytest.mark.parametrize("seed", range(8))
def test_unruly_clients_never_break_the_record(family, scores, seed):
    """2,000 steps in eight parts; each must make its share, so that a shorter search cannot pass unseen."""
    score = play(family, examples=12, seed=seed, phases=(Phase.generate,))
    scores.append(score)
    assert score.steps >= 250


def test_every_rule_was_played_and_did_what_it_is_for(scores):
    if len(scores) < 8:
        pytest.skip("only where all parts were played")
    rules = sum((Counter(score.rules) for score in scores), Counter())
    seen = sum((Counter(score.seen) for score in scores), Counter())
    assert rules.total() >= 2_000
    assert set(rules) == RULES
    assert seen["model calls"] >= 1_000
    for what in ("replies of several versions", "calls open at a seal", "repeats", "edge branch", "edge rewritten"):
        assert seen[what] >= 3, f"{what}: {seen[what]}"
    for reason in ("abandoned_retry", "truncated_policy", "quarantined", "stale_weights"):
        assert seen[f"tokens left out: {reason}"] > 0


def encode_replies_again(monkeypatch):
    commit = Forest.commit

    def broken(self, plan, sampled, turn, **fields):
        tokenizer = self._prompts._family.tokenizer
        again = tokenizer.encode(tokenizer.decode(sampled.token_ids), special=True)[: len(sampled)]
        if len(again) == 0:
            return commit(self, plan, sampled, turn, **fields)
        numbers = {"logprobs": sampled.logprobs, "policy_versions": sampled.policy_versions}
        cut = {name: values[: len(again)] for name, values in numbers.items()}
        return commit(self, plan, Sampled.restore(token_ids=again, finish=sampled.finish, **cut), turn, **fields)

    monkeypatch.setattr(Forest, "commit", broken)


def read_control_tokens_in_text(monkeypatch):
    monkeypatch.setattr(Tokenizer, "ids_of", lambda self, text: tuple(self.encode(text, special=True).tolist()))


def sample_retries_anew(monkeypatch):
    monkeypatch.setattr(GatewaySession, "_known", lambda self, fingerprint: None)


def forget_calls_open_at_the_seal(monkeypatch):
    seal = GatewaySession.seal
    monkeypatch.setattr(GatewaySession, "seal", lambda self: replace(seal(self), open_calls=0))


def stamp_a_whole_reply_with_its_last_version(monkeypatch):
    join = Sampled.join.__func__

    def broken(cls, pieces):
        whole = join(cls, pieces)
        return Sampled.restore(
            token_ids=whole.token_ids,
            logprobs=whole.logprobs,
            policy_versions=np.full(len(whole), whole.policy_versions[-1]),
            finish=whole.finish,
        )

    monkeypatch.setattr(Sampled, "join", classmethod(broken))


def deliver_the_newest_path_only(monkeypatch):
    leaves = Trace.leaves
    monkeypatch.setattr(Trace, "leaves", property(lambda self: leaves.fget(self)[-1:]))


def shift_logprobs(monkeypatch):
    whole = emission_module._sample

    def broken(*arguments, **fields):
        row = whole(*arguments, **fields)
        return row.but(logprobs=np.where(row.loss_mask, np.roll(row.logprobs, 1), np.float32(0)))

    monkeypatch.setattr(emission_module, "_sample", broken)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed_fault",
    [
        encode_replies_again,
        read_control_tokens_in_text,
        sample_retries_anew,
        forget_calls_open_at_the_seal,
        stamp_a_whole_reply_with_its_last_version,
        deliver_the_newest_path_only,
        shift_logprobs,
    ],
    ids=lambda fault: fault.__name__,
)
def test_the_machine_has_teeth(family, monkeypatch, seed_fault):
    seed_fault(monkeypatch)
    with pytest.raises((AssertionError, AgarError, ExceptionGroup)):
        play(family, examples=60, seed=0, phases=(Phase.generate,))
