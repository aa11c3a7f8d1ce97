"""`docs/fidelity.md` is what `benchmarks/fidelity.py` makes, and the oracle behind it can tell."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.scripts import script

from agar.ledger.families import family_for
from agar.ledger.toy import write_toy_model
from agar.ledger.trace import digest
from agar.types import Sampled

ROOT = Path(__file__).resolve().parent.parent.parent

pytest.importorskip("uvicorn")
pytest.importorskip("aiohttp")


@pytest.fixture(scope="module")
def fidelity():
    with script(ROOT / "benchmarks" / "fidelity.py") as module:
        yield module


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_page_is_what_a_fresh_run_gives(fidelity):
    rows = await fidelity.measure_all()
    assert fidelity.page(rows) == fidelity.PAGE.read_text("utf-8"), "run python benchmarks/fidelity.py --write"
    reached = {row.name: (row.samples, row.prefix_violations, row.audit_violations) for row in rows}
    assert reached == {
        "verbatim": (1.0, 0, 0),
        "non-canonical tokens": (1.0, 0, 0),
        "reasoning dropped": (1.0, 0, 0),
        "tool JSON respelled": (1.0, 0, 0),
        "two parallel sub-agents": (3.0, 0, 0),
        "compaction + retries": (3.0, 0, 0),
        "nonce": (1.0, 0, 0),
        "nonce, not declared": (8.0, 0, 0),
    }
    assert all(row.trained + sum(row.excluded.values()) == row.sampled > 0 for row in rows)
    assert rows[0].split == 0 < 0.04 < rows[1].split < 0.06


@pytest.mark.timeout(120)
async def test_the_oracle_sees_a_reply_that_was_encoded_again(fidelity, tmp_path, monkeypatch):
    """The classic fault: the first reply is replaced by the encoding of its text. Every later token shows it."""
    model = write_toy_model(tmp_path)
    family = family_for(model)
    kept = []
    count = fidelity.count
    monkeypatch.setattr(
        fidelity, "count", lambda one, traces, *rest, **more: kept.extend(traces) or count(one, traces, *rest, **more)
    )
    sound = await fidelity.measure(fidelity.SCENARIOS[1], model, episodes=1)
    (trace,) = kept
    first, *later = trace.nodes
    ids = family.tokenizer.encode(family.tokenizer.decode(first.sampled.token_ids), special=True)
    assert ids.tolist() != first.sampled.token_ids.tolist()
    sampled = Sampled.restore(
        token_ids=ids, logprobs=[-1.0] * len(ids), policy_versions=[0] * len(ids), finish=first.sampled.finish
    )
    broken = replace(trace, nodes=(replace(first, sampled=sampled), *later))
    for node in later:  # a recorder with this fault would believe itself
        assert digest(broken.prompt(node.id)) != node.prompt_digest
    row = count(fidelity.SCENARIOS[1], [broken], family, calls=8, split=0.0)
    assert sound.prefix_violations == 0
    assert row.prefix_violations == row.trained
    assert row.audit_violations > 0
