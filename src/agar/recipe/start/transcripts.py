"""What a starting policy's tokenizer is trained on: demonstrations of its environment, as text."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from agar.ledger.families.chatml import ChatML
from agar.ledger.tokenizer import Tokenizer
from agar.recipe.start.tokenizer import bytes_only
from agar.rollout.sources.config import DemonstrationsConfig
from agar.rollout.sources.demonstrations import Demonstrations


def texts(config: DemonstrationsConfig, *, episodes: int = 200) -> list[str]:
    """Play one batch of demonstrations, those of the last phase, and render it, control tokens included.

    Args:
        config: who plays what.
        episodes: how many are played; enough to hold every piece of text that an episode is made of.

    Returns:
        One text per episode; the same ones each time.

    Raises:
        ConfigError, DeadlineError, EnvError: an episode could not be played.
    """
    family = ChatML(Tokenizer(bytes_only().to_str()))
    config = config.model_copy(update={"trajectories_per_step": episodes, "phases": config.phases[-1:]})
    with ThreadPoolExecutor(1) as thread:  # a loop of its own, so that asynchronous callers are served too
        return thread.submit(asyncio.run, _play(config, family)).result()


async def _play(config: DemonstrationsConfig, family: ChatML) -> list[str]:
    source = Demonstrations(config, family=family, steps=1, seed=0)
    async with source.running(1):
        batch = await source.next_batch({})
    return [family.tokenizer.decode(sample.token_ids) for sample in batch.samples]
