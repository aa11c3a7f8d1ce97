"""What the tokenizer is trained on: transcripts of scripted agents in the environment, as text."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from agar.examples.quickstart.tokenizer import bytes_only
from agar.ledger.families.chatml import ChatML
from agar.ledger.tokenizer import Tokenizer
from agar.rollout.sources.config import DemonstrationsConfig, DemonstratorConfig, PhaseConfig
from agar.rollout.sources.demonstrations import Demonstrations

HUNTERS = DemonstrationsConfig(
    env="Hunt-v0",
    kwargs={"sandbox": {"backend": "fake"}},  # reading boxes is all that these agents do: nothing to isolate
    phases=(PhaseConfig(agents=(DemonstratorConfig(policy="agar.agents.hunters:imperfect_hunter"),)),),
    trajectories_per_step=200,
)
"""Enough hunts to hold every piece of text that a hunt is made of."""


def texts(config: DemonstrationsConfig = HUNTERS) -> list[str]:
    """Play one batch of demonstrations and render it, control tokens included.

    Args:
        config: who plays what, and how many episodes (`trajectories_per_step`).

    Returns:
        One text per episode; the same ones each time.

    Raises:
        ConfigError, DeadlineError, EnvError: an episode could not be played.
    """
    family = ChatML(Tokenizer(bytes_only().to_str()))
    with ThreadPoolExecutor(1) as thread:  # a loop of its own, so that asynchronous callers are served too
        return thread.submit(asyncio.run, _play(config, family)).result()


async def _play(config: DemonstrationsConfig, family: ChatML) -> list[str]:
    source = Demonstrations(config, family=family, steps=1, seed=0)
    async with source.running():
        batch = await source.next_batch({})
    return [family.tokenizer.decode(sample.token_ids) for sample in batch.samples]
