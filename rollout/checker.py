"""L5 of the conformance check: episodes of an environment can be trained on.

They are played as in training, through the gateway, against an engine whose model is a hash. One attempt in two says
what the environment's `gold` says, token by token, so that tools are called and rewards earned; the other one says what
the hash draws.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agar.envs.checker import Check, run_check
from agar.envs.checks.subject import Fault, NotApplicable, Subject
from agar.envs.registry import make, spec
from agar.errors import to_install
from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig
from agar.types import AsyncEnvLike, GroupId, Message, Sampling, SessionAccess, TaskRow, Turn

if TYPE_CHECKING:
    from agar.ledger.families.base import Family

GROUPS = 8
"""Tasks that are played."""
GROUP_SIZE = 4
"""Attempts at each."""
_RANDOM_TOKENS = 16


async def acheck_trainable(id: str, *, kwargs: Mapping[str, Any] | None = None, timeout_s: float = 300.0) -> Check:
    """Play episodes and audit their record.

    Args:
        id: the environment's registered name.
        kwargs: arguments of its constructor.
        timeout_s: the deadline of all episodes together.

    Returns:
        One check of level L5.

    Raises:
        ConfigError: nobody registered the name.
    """
    spec(id)
    return await run_check("L5", trainable, Subject(id=id, kwargs=dict(kwargs or {})), timeout_s)


def check_trainable(id: str, *, kwargs: Mapping[str, Any] | None = None, timeout_s: float = 300.0) -> Check:
    """`acheck_trainable`, from synchronous code."""
    return asyncio.run(acheck_trainable(id, kwargs=kwargs, timeout_s=timeout_s))


async def trainable(subject: Subject) -> str:
    """Every episode counts, and every invariant of the ledger holds over it."""
    traces = await _episodes(subject)
    failed = Counter(f"{trace.outcome}: {trace.reason}" for trace in traces if not trace.outcome.trainable)
    if failed:
        reason, count = failed.most_common(1)[0]
        raise Fault(f"{count} of {len(traces)} episodes are excluded from training ({reason})")
    samples = [sample for trace in traces for sample in emit(trace)]
    report = audit(traces, samples)
    if report.violations:
        first = report.violations[0]
        raise Fault(f"{len(report.violations)} invariants are broken, first {first.invariant}: {first.detail}")
    if report.trained_tokens == 0:
        raise Fault("not one token would be trained: does an episode end before the first turn?")
    mixed = sum(
        len({trace.reward.total for trace in traces if trace.group.ordinal == group}) > 1 for group in range(GROUPS)
    )
    ends = Counter(trace.outcome.value for trace in traces)
    return (
        f"{len(traces)} episodes ({', '.join(f'{count} {end}' for end, count in sorted(ends.items()))}), "
        f"{report.trained_tokens} of {report.sampled_tokens} tokens trained, {mixed} of {GROUPS} groups with different "
        "rewards; every invariant holds"
    )


async def _episodes(subject: Subject) -> list[Trace]:
    try:
        from agar.ledger.families import family_for
        from agar.ledger.toy import write_toy_model
        from agar.rollout.engines.client import RouterClient
        from agar.rollout.engines.fake import FakeEngine
        from agar.rollout.episode import EpisodeRunner
        from agar.rollout.gateway.server import Gateway
        from agar.rollout.grading import play_group
    except ImportError as error:
        raise NotApplicable(f"it needs the gateway ({error}): {to_install('gateway')}") from error

    with tempfile.TemporaryDirectory(prefix="agar-check-") as folder:
        family = family_for(await asyncio.to_thread(write_toy_model, folder))
        agent = GoldAgent(family)
        async with (
            FakeEngine(vocab_size=family.tokenizer.vocabulary_size, version=1, script=agent.script) as engine,
            RouterClient(engine.url) as client,
            Gateway(engines={"main": client}, families={"main": family}) as gateway,
        ):
            runner = EpisodeRunner(
                gateway=gateway,
                agent=agent,
                make_env=lambda name, arguments: make(name, **arguments),
                config=RolloutConfig(),
            )
            tasks = subject.some(GROUPS)
            attempts = [
                Attempt(
                    group=GroupId(task=tasks[group % len(tasks)].key, ordinal=group),
                    index=index,
                    task=tasks[group % len(tasks)],
                    env=subject.id,
                    env_kwargs=subject.kwargs,
                )
                for group in range(GROUPS)
                for index in range(GROUP_SIZE)
            ]

            async def play(attempt: Attempt) -> Trace:
                sampling = Sampling(max_tokens=4096 if attempt.index % 2 else _RANDOM_TOKENS)
                return await runner.play(attempt, sampling)

            return await play_group(attempts, play, None)


class GoldAgent:
    """Asks the engine for the environment's gold turns where the sampling leaves room for them, else for anything."""

    def __init__(self, family: "Family") -> None:
        """Speak in a family's tokens."""
        self._family = family
        self._replies: dict[bytes, list[int]] = {}

    def script(self, prompt: Sequence[int], params: Mapping[str, Any]) -> Sequence[int] | None:
        """The engine's side: the reply that was left for a prompt, or None for a drawn one."""
        if int(params.get("max_new_tokens", 0)) <= _RANDOM_TOKENS:
            return None
        return self._replies.get(_key(prompt))

    async def play(self, env: AsyncEnvLike, task: TaskRow, session: SessionAccess) -> None:
        """Play until the environment ends the episode."""
        observation, _ = await env.areset(seed=task.payload.get("seed"), options={"task": task})
        messages = list(observation)
        while True:
            await self._leave(messages, env)
            turn = await session.chat(messages, tools=env.tools)
            observation, _, terminated, truncated, _ = await env.astep(turn)
            if terminated or truncated:
                return
            messages += [turn.message(), *observation]

    async def _leave(self, messages: list[Message], env: AsyncEnvLike) -> None:
        from agar.rollout.episode import Watched

        gold = await env.agold() if isinstance(env, Watched) else None
        if gold is not None:
            whole, said = self._family.transcript([*messages, Turn.of(gold).message()], env.tools)
            prompt = self._family.render(messages, env.tools)
            self._replies[_key(prompt)] = whole[len(prompt) :][said[len(prompt) :]].tolist()


def _key(prompt: Sequence[int] | Any) -> bytes:
    return b",".join(str(int(token)).encode() for token in prompt)
