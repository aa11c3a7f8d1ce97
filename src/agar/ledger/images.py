"""Images in prompts: which there are, and the tokens that stand for them.

A prompt holds one placeholder per image, as the model's template writes it; the engine puts the image's own tokens in
its place. Foreign text cannot spell a placeholder, so that counting them says whether every image is there.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agar.errors import LedgerError
from agar.types import Ids, ImagePart, Message, Sampled


def images_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """The images of messages, in order, as URLs or data URLs."""
    parts = [part for message in messages if not isinstance(message.content, str) for part in message.content]
    return tuple([part.url for part in parts if isinstance(part, ImagePart)]) if parts else ()


def placeholders(ids: Ids, token: int) -> npt.NDArray[np.int32]:
    """Where images stand: start and length of each, int32 [I, 2]."""
    starts = np.flatnonzero(ids == token).astype(np.int32)
    return np.stack([starts, np.ones_like(starts)], axis=1)


def require_all_images(ids: Ids, messages: Sequence[Message], token: int | None) -> None:
    """Check that ids hold a placeholder for each image of the messages they were written for.

    Raises:
        LedgerError: the template left an image out.
    """
    if token is None:
        return
    expected, found = len(images_of(messages)), int((ids == token).sum())
    if found != expected:
        raise LedgerError(
            f"the chat template has a place for {found} of {expected} images: send them where it writes them"
        )


def with_placeholders(sampled: Sampled, delta: Ids, token: int | None) -> Sampled:
    """The reply with the side array `images`: where images stand in the ids before it, counted from `delta`."""
    if token is None or not (delta == token).any():
        return sampled
    return Sampled.restore(
        token_ids=sampled.token_ids,
        logprobs=sampled.logprobs,
        policy_versions=sampled.policy_versions,
        finish=sampled.finish,
        side={**sampled.side, "images": placeholders(delta, token)},
    )
