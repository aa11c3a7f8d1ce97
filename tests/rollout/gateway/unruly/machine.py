"""Unruly clients, as a state machine: everything that real programs do to a gateway, in any order and at once."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import get_state_machine_test
from unruly.conversations import Conversations
from unruly.delivery import Delivery
from unruly.ends import Ends
from unruly.world import World

from agar.ledger.families import Family


class UnrulyClients(Conversations, Delivery, Ends):
    """All rules; `play` runs them in a world."""


_RULE = "hypothesis_stateful_rule"
RULES = frozenset(name for name in dir(UnrulyClients) if hasattr(getattr(UnrulyClients, name), _RULE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a run of the machine came to.

    Attributes:
        rules: how often each rule was played.
        seen: how often something notable came of it, by name.
    """

    rules: Mapping[str, int]
    seen: Mapping[str, int]

    @property
    def steps(self) -> int:
        """Steps in all; the invariants were checked after each."""
        return sum(self.rules.values())


def play(family: Family, *, examples: int, seed: int, phases: Sequence[Phase] = tuple(Phase)) -> Score:
    """Run the machine in a world of its own.

    Args:
        family: of the model.
        examples: how many sequences of up to 40 steps.
        seed: equal seeds play equal sequences.
        phases: hypothesis' own.
    """
    machine: Any = type("Machine", (UnrulyClients,), {"steps": Counter(), "seen": Counter()})
    searched = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        print_blob=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner() as runner:
        world = World(family)
        runner.run(world.__aenter__())
        try:
            machine.world, machine.runner = world, runner
            hypothesis.seed(seed)(get_state_machine_test(machine, settings=searched))()
        finally:
            runner.run(world.__aexit__())
    return Score(rules=machine.steps, seen=machine.seen)
