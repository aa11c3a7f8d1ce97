"""Deliver weights to engines and judge the proof: nothing is believed because an endpoint said 200.

Every engine has to load the update, stamp its version, report a checksum that changed if and only if the digest did
and that the others share, and score the probe as the trainer did.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from agar.errors import AgarError, EngineError, PublishError
from agar.rollout.engines.control import EngineControl
from agar.types import WeightUpdate

logger = logging.getLogger(__name__)

_RESUME_S = 10.0  # of an engine that has failed: the others wait meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What one engine showed after it took an update.

    Attributes:
        checksum: its own checksum of its weights.
        gap: largest absolute difference to the trainer's log-probs of the probe, in nats.
        version: the version that it stamps on its replies.
    """

    checksum: str
    gap: float
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """An update that arrived, and the checksum on which the engines agreed."""

    update: WeightUpdate
    checksum: str


async def deliver(control: EngineControl, update: WeightUpdate, *, timeout_s: float) -> Proof:
    """Pause one engine, load the update, resume it, and collect its proof.

    Raises:
        EngineError: the engine refused or did not answer; it must not serve until a later update succeeds.
        PublishError: the update itself is incomplete.
    """
    try:
        await control.pause()
        await control.load(update, timeout_s=timeout_s)
        checksum = await control.checksum(timeout_s=timeout_s)
    except AgarError:
        with suppress(EngineError):  # a paused engine would fail its health checks for ever
            await control.resume(timeout_s=_RESUME_S)
        raise
    await control.resume()
    values, version = await control.probe(update.probe.token_ids, timeout_s=timeout_s)
    expected = np.asarray(update.probe.logprobs, dtype=np.float32)
    if len(expected) != len(values):
        raise PublishError(
            f"the probe of version {update.version} has {len(expected)} log-probs for {len(values) + 1} tokens: "
            "it needs one less than tokens"
        )
    gap = float(np.abs(values - expected).max()) if len(values) else 0.0
    return Proof(checksum=checksum, gap=gap, version=version)


def fault_of(proof: Proof, update: WeightUpdate, previous: Delivered | None) -> str | None:
    """Why one engine's proof does not hold by itself; None where it does.

    Args:
        proof: what the engine showed.
        update: what it was sent.
        previous: the update that was delivered before it.
    """
    if proof.version != update.version:
        return f"stamps version {proof.version}, expected {update.version}"
    if previous is not None and update.digest != previous.update.digest and proof.checksum == previous.checksum:
        return "kept the old weights: its checksum did not change although the digest did"
    if previous is not None and update.digest == previous.update.digest and proof.checksum != previous.checksum:
        return "its checksum changed although the digest did not"
    if not proof.gap <= update.probe.tolerance:  # also where it is not a number
        return f"its log-probs of the probe are {proof.gap:.3g} nats off, allowed are {update.probe.tolerance:.3g}"
    return None


def judge(
    proofs: Mapping[str, Proof], update: WeightUpdate, previous: Delivered | None, failed: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """Decide which engines serve the update.

    Args:
        proofs: by engine.
        update: what they were sent.
        previous: the update delivered before it, None for the first.
        failed: why other engines have no proof to show, for the message.

    Returns:
        The checksum agreed on, and why each of the others that showed a proof missed the update.

    Raises:
        PublishError: no engine's proof holds, or the engines are split with no majority.
    """
    missed: dict[str, str] = {}
    for name, proof in proofs.items():
        fault = fault_of(proof, update, previous)
        if fault is not None:
            missed[name] = fault
    votes = Counter(proof.checksum for name, proof in proofs.items() if name not in missed)
    ranked = votes.most_common(2)
    if not ranked:
        raise PublishError(f"no engine serves version {update.version}: {_list({**failed, **missed})}")
    if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
        raise PublishError(
            f"engines disagree about the weights of version {update.version}: "
            + _list({name: proof.checksum[:12] for name, proof in proofs.items()})
        )
    checksum = ranked[0][0]
    for name, proof in proofs.items():
        if name not in missed and proof.checksum != checksum:
            missed[name] = f"its checksum {proof.checksum[:12]} differs from the majority's {checksum[:12]}"
    return checksum, missed


def _list(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())) or "there is no engine"


async def bring_up_to_date(control: EngineControl, current: Delivered, *, timeout_s: float) -> None:
    """Give a restarted engine the weights that the others serve, with the same proof.

    Raises:
        EngineError: it does not hold them afterwards.
    """
    proof = await deliver(control, current.update, timeout_s=timeout_s)
    fault = fault_of(proof, current.update, current)
    if fault is not None:
        raise EngineError(f"{control.url} cannot rejoin with version {current.update.version}: {fault}")
    logger.info("engine %s holds version %s again", control.url, current.update.version)
