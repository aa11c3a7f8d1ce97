"""A run folder with everything that a page has to show, hostile text included."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agar.ledger.families import Family, family_for
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs, write_toy_model
from agar.ledger.trace import Trace, dump_traces
from agar.recipe.folder import RunFolder
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow

HOSTILE = (
    "</script><img src=x onerror=document.title='owned'><script>document.title='owned'</script>&amp;\u2028\u202egnp<!--"
)


def record(family: Family, calls: Sequence[tuple[int, str, str]]) -> Forest:
    """A forest: each call is (node continued or -1, what the user says, what the model says)."""
    forest = Forest(family)
    histories: dict[int, list[Message]] = {-1: []}
    for parent, says, reply in calls:
        history = [*histories[parent], Message(role="user", content=says)]
        plan = forest.plan(history)
        ids = family.tokenizer.encode(f"{reply}<|im_end|>", special=True)  # type: ignore[attr-defined]
        sampled = Sampled.restore(
            token_ids=ids,
            logprobs=hash_logprobs(plan.prompt, ids),
            policy_versions=np.where(np.arange(len(ids)) < 2, 3, 4),
            finish=Finish.STOP,
        )
        node = forest.commit(plan, sampled, family.parse(ids), sampling=Sampling())
        said = replace(node.turn.message(), content=node.turn.text + "\n")  # a changed white space: a divergence
        histories[node.id] = [*history, said]
    return forest


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return family_for(write_toy_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def trace(family: Family) -> Trace:
    """Four calls: a fork below the first, and a retry that was abandoned; names and texts attack the page."""
    forest = record(
        family,
        [(-1, HOSTILE, f"caf\u00e9 {HOSTILE}"), (0, "Go on.", "box 1"), (0, "Go on.", "box 2"), (0, "Back.", "29")],
    )
    return Trace(
        trajectory=f"train/{HOSTILE}", group=GroupId(task=HOSTILE, ordinal=0), role="agent", policy="main",
        task=TaskRow(key="k", prompt=HOSTILE, payload={HOSTILE: [HOSTILE]}, env="Guess-v0"),
        nodes=tuple(forest.nodes), divergences=tuple(forest.differences), turn_rewards={3: 1.0},
        reward=Reward(total=1.0, parts={HOSTILE: float("nan")}), outcome=Outcome.COMPLETED, reason=HOSTILE,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, trace: Trace) -> RunFolder:
    """A run with two training batches and one evaluation, and the tokenizer of its model."""
    model = write_toy_model(tmp_path / "model")
    run = tmp_path / "run<b>"
    (run / "traces").mkdir(parents=True)
    (run / "recipe.json").write_text(json.dumps({"policies": {"main": {"model": str(model)}}}))
    rows = [{"step": step, "rollout/reward_mean": 0.1 * step, HOSTILE: 1.0, "odd": float("nan")} for step in range(4)]
    (run / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + '\n{"step": 4, "cut')
    for file, count in (("step-000001", 3), ("step-000002", 3), ("eval-000002-Guess-v0", 1)):
        made = [replace(trace, trajectory=f"{file}/{n}/{HOSTILE}") for n in range(count)]
        dump_traces(run / "traces" / f"{file}.jsonl", made)
    return RunFolder.open(run)
