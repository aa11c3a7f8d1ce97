"""The nouns that cross between rooms, and the small protocols between them.

A task starts an episode; its turns are recorded in a trace; a trace yields samples (training rows); samples make a
batch; a batch makes an optimiser step; a step is published to the engines as the next policy version.

Everything here is frozen. Every array is numpy, one-dimensional unless said otherwise, read-only, and checked at
construction. Legend: T tokens of a sample, n tokens of one model reply.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from agar.errors import AgarError, ConfigError, EngineError, ShapeError

Ids = npt.NDArray[np.int32]
"""Token ids, int32 [n]."""
Floats = npt.NDArray[np.float32]
"""Per-token numbers, float32 [n]."""
Bools = npt.NDArray[np.bool_]
"""Per-token flags, bool [n]."""
Metrics = Mapping[str, float]
"""One row of numbers, keyed `room/name_unit`, for instance `trainer/step_s`."""

MessageRole = Literal["system", "user", "assistant", "tool"]


# ---------------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A piece of text inside a message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """An image inside a message, as a URL or a data URL."""

    url: str


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a model is told about a tool: its name, a sentence, and the JSON schema of its arguments.

    Nobody changes `parameters` in place, since renderings of it are kept: another schema is another `ToolSpec`.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool, as the model made it.

    `arguments` is the parsed JSON object; it is compared by value, never by spelling.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    `tool_calls` and `reasoning` belong to assistant messages; `tool_call_id` to tool messages.
    """

    role: MessageRole
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        """The text of the content; image parts are left out."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class Finish(StrEnum):
    """Why a model reply ended."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """A token limit cut it."""
    ABORT = "abort"
    """The engine gave it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What an agent says in one turn: the action of every environment.

    `parse_error` is the reason why tool calls in the reply could not be parsed, else None.
    """

    text: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = Finish.STOP
    parse_error: str | None = None

    @classmethod
    def of(cls, action: "Turn | str") -> "Turn":
        """Accept a plain string wherever a turn is expected.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(action, str):
            return cls(text=action)
        if not isinstance(action, Turn):
            raise ConfigError(f"expected a Turn or a text, got {type(action).__name__}: {action!r:.200}")
        return action

    def message(self) -> Message:
        """The turn as an assistant message."""
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls, reasoning=self.reasoning)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task. `key` is unique in its task set; `payload` is the environment's own data (answers included)."""

    key: str
    prompt: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    split: str = "train"
    env: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A graded reward: the total and its named parts."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)


class Outcome(StrEnum):
    """How an episode ended. Success is a metric, not an outcome."""

    COMPLETED = "completed"
    """The task ended by the environment's word."""
    TRUNCATED = "truncated"
    """A budget (turns, tokens, context, wall clock) ended it."""
    AGENT_ERROR = "agent_error"
    """The agent did something that ends the episode; it counts."""
    ENV_ERROR = "env_error"
    """The environment or its grader failed; outside the statistics."""
    INFRA_ERROR = "infra_error"
    """An engine, a sandbox or the network failed; outside the statistics."""
    CANCELLED = "cancelled"
    """We stopped it; outside the statistics."""

    @property
    def trainable(self) -> bool:
        """True for the outcomes that reach the loss and the group statistics."""
        return self in {Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.AGENT_ERROR}


# ------------------------------------------------------------------------------------------------------ tokens


def frozen_array(values: npt.ArrayLike, dtype: npt.DTypeLike, name: str) -> npt.NDArray[Any]:
    """Copy `values` to a read-only one-dimensional array.

    Raises:
        ShapeError: the values are not one-dimensional or cannot be cast to `dtype` without loss of kind.
    """
    array = np.array(values, dtype=dtype, copy=True)
    if array.ndim != 1:
        raise ShapeError(f"{name} must be one-dimensional, got shape {array.shape}: pass one row")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an engine samples. The defaults are the neutral sampler: log-probs are the model's own.

    Source for why training wants it neutral: top-p, top-k, min-p renormalise, penalties shift the log-probs.

    `stop` ends a reply at a text without touching any log-prob. `json_schema` (its JSON text) constrains it: log-probs
    are then those of the constrained sampler, not the model's own.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_tokens: int = 256
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    seed: int | None = None
    json_schema: str | None = None

    @property
    def neutral(self) -> bool:
        """Whether any token could be drawn, each with the model's own probability (a schema aside)."""
        return self.temperature > 0 and self.top_p >= 1 and self.top_k <= 0 and self.min_p <= 0


_FINISHES: Mapping[str, Finish] = {finish.value: finish for finish in Finish}
_ENGINE_KEY = object()
_NO_SIDE: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})


class Sampled:
    """Tokens that an engine sampled: the only legal source of trained tokens.

    It is built by `from_generate` (a `/generate` reply of SGLang's shape), by `join` (pieces of one interrupted
    reply) and by `restore` (a trace file), never from text, so that encoded text cannot pass for sampled tokens.

    Attributes:
        token_ids: int32 [n], as sampled, stop token included where the engine returned it.
        logprobs: float32 [n], the engine's log-probs of those tokens, finite and <= 0.
        policy_versions: int32 [n], the policy version that sampled each token, >= 0.
        finish: why the reply ended.
        side: per-token side arrays (routed experts and the like), by name.
    """

    __slots__ = ("finish", "logprobs", "policy_versions", "side", "token_ids")

    def __init__(
        self,
        key: object,
        *,
        token_ids: npt.ArrayLike,
        logprobs: npt.ArrayLike,
        policy_versions: npt.ArrayLike,
        finish: Finish,
        side: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        if key is not _ENGINE_KEY:
            raise EngineError("Sampled is built from an engine's reply: use Sampled.from_generate, join or restore")
        self.token_ids: Ids = frozen_array(token_ids, np.int32, "token_ids")
        self.logprobs: Floats = frozen_array(logprobs, np.float32, "logprobs")
        self.policy_versions: Ids = frozen_array(policy_versions, np.int32, "policy_versions")
        self.finish = finish
        self.side: Mapping[str, npt.NDArray[Any]] = MappingProxyType(dict(side)) if side else _NO_SIDE
        n = len(self.token_ids)
        if len(self.logprobs) != n or len(self.policy_versions) != n:
            raise ShapeError(
                f"an engine reply of {n} tokens came with {len(self.logprobs)} log-probs and "
                f"{len(self.policy_versions)} versions: they must be equal"
            )
        if n and not (self.logprobs.min() > -np.inf and self.logprobs.max() <= 1e-4):  # false for NaN too
            raise ShapeError("an engine reply holds a log-prob that is not finite or above 0")

    def __len__(self) -> int:
        return len(self.token_ids)

    @classmethod
    def from_generate(cls, reply: Mapping[str, Any], *, policy_version: int | None = None) -> "Sampled":
        """Read one reply of SGLang's `/generate` with `return_logprob`.

        Args:
            reply: holds `meta_info.output_token_logprobs` as (logprob, id, ...) rows, `meta_info.finish_reason.type`
                and `meta_info.weight_version`.
            policy_version: overrides `weight_version` (an engine that does not stamp its replies).

        Raises:
            EngineError: a field is missing or cannot be read.
        """
        try:
            meta = reply["meta_info"]
            rows = meta["output_token_logprobs"]
            version = int(meta["weight_version"]) if policy_version is None else policy_version
            finish = _FINISHES[(meta.get("finish_reason") or {}).get("type", "abort")]
            ids = np.array([row[1] for row in rows], dtype=np.int32)
            logprobs = np.array([float(row[0]) for row in rows], dtype=np.float32)
            np.minimum(logprobs, 0, out=logprobs)
            versions = np.empty(len(rows), dtype=np.int32)
            versions.fill(version)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise EngineError(
                f"the engine's reply lacks token ids, log-probs or an integer weight_version ({error!r}): "
                "send return_logprob and publish weights with an integer version"
            ) from error
        return cls._of_rows(ids, logprobs, versions, finish)

    @classmethod
    def _of_rows(cls, ids: Ids, logprobs: Floats, versions: Ids, finish: Finish) -> "Sampled":
        """A reply of arrays that nobody else has, of one length, with no log-prob above 0: no copies, fewer checks."""
        if ids.ndim != 1 or (len(ids) and not logprobs.min() > -np.inf):
            return cls(_ENGINE_KEY, token_ids=ids, logprobs=logprobs, policy_versions=versions, finish=finish)
        sampled = cls.__new__(cls)
        sampled.token_ids, sampled.logprobs, sampled.policy_versions = ids, logprobs, versions
        sampled.finish, sampled.side = finish, _NO_SIDE
        for array in (ids, logprobs, versions):
            array.setflags(write=False)
        return sampled

    @classmethod
    def join(cls, pieces: Sequence["Sampled"]) -> "Sampled":
        """Join the consecutive pieces of one reply that was interrupted; the last piece says how it ended."""
        if not pieces:
            raise EngineError("no pieces to join: the engine returned nothing")
        return cls(
            _ENGINE_KEY,
            token_ids=np.concatenate([p.token_ids for p in pieces]),
            logprobs=np.concatenate([p.logprobs for p in pieces]),
            policy_versions=np.concatenate([p.policy_versions for p in pieces]),
            finish=pieces[-1].finish,
            side={
                name: np.concatenate([p.side[name] for p in pieces])
                for name in pieces[0].side
                if all(name in p.side for p in pieces)
            },
        )

    @classmethod
    def restore(
        cls,
        *,
        token_ids: npt.ArrayLike,
        logprobs: npt.ArrayLike,
        policy_versions: npt.ArrayLike,
        finish: Finish,
        side: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> "Sampled":
        """Rebuild a reply from a trace file that recorded one."""
        return cls(
            _ENGINE_KEY,
            token_ids=token_ids,
            logprobs=logprobs,
            policy_versions=policy_versions,
            finish=finish,
            side=side,
        )


class Source(IntEnum):
    """Where a token of a sample came from."""

    CONTEXT = 0
    """Prompt, environment, tool output, template."""
    SAMPLED = 1
    """An engine sampled it."""
    DEMONSTRATION = 2
    """A demonstration to imitate; only in SFT and DPO batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupId:
    """The attempts at one task. `ordinal` makes a task that comes up again a new group; unique in a run."""

    task: str
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One training row.

    A trajectory (one attempt) may give several samples (sub-agents, compaction, forks); statistics count
    trajectories, never samples, and the weights of a trajectory's samples add to 1.

    Example: prompt [1, 2, 3], reply [7, 8], then observation [4], then reply [9]:
    `token_ids = [1,2,3,7,8,4,9]`, `loss_mask = [0,0,0,1,1,0,1]`.

    Attributes:
        policy: name of the policy that is trained on it.
        group: the group of attempts.
        role: role in the environment; "agent" where there is only one.
        trajectory: id of the attempt.
        token_ids: int32 [T].
        loss_mask: bool [T], True where the token is trained.
        source: uint8 [T], a `Source` per token.
        logprobs: float32 [T], the engine's log-prob; 0 where unsampled.
        policy_versions: int32 [T]; -1 where unsampled.
        rewards: float32 [T], a turn's reward on its last action token, else 0.
        reward: the trajectory's total, which group statistics use.
        weight: this sample's share of its trajectory.
        outcome: how the episode ended.
        side: side arrays by name.
        meta: free-form, JSON-able.
    """

    policy: str
    group: GroupId
    role: str
    trajectory: str
    token_ids: Ids
    loss_mask: Bools
    source: npt.NDArray[np.uint8]
    logprobs: Floats
    policy_versions: Ids
    rewards: Floats
    reward: float
    weight: float
    outcome: Outcome
    side: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, dtype in _SAMPLE_ARRAYS.items():
            object.__setattr__(self, name, frozen_array(getattr(self, name), dtype, f"Sample.{name}"))
        length = len(self.token_ids)
        for name in _SAMPLE_ARRAYS:
            if len(getattr(self, name)) != length:
                raise ShapeError(f"Sample.{name} has {len(getattr(self, name))} entries, expected {length} (token_ids)")
        if length and int(self.token_ids.min()) < 0:
            raise ShapeError(f"Sample.token_ids holds {int(self.token_ids.min())}: ids must be >= 0")
        if not np.isfinite(self.logprobs).all() or not np.isfinite(self.rewards).all() or not np.isfinite(self.reward):
            raise ShapeError("Sample.logprobs, rewards and reward must be finite")

    @property
    def oldest_version(self) -> int | None:
        """The oldest policy version among trained, sampled tokens; None where there is none."""
        trained = self.policy_versions[self.loss_mask & (self.source == Source.SAMPLED)]
        return int(trained.min()) if len(trained) else None

    def but(self, **changes: Any) -> "Sample":
        """A copy with some fields changed."""
        return replace(self, **changes)


_SAMPLE_ARRAYS: Mapping[str, type] = {
    "token_ids": np.int32,
    "loss_mask": np.bool_,
    "source": np.uint8,
    "logprobs": np.float32,
    "policy_versions": np.int32,
    "rewards": np.float32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The samples of one optimiser step: whole groups.

    Attributes:
        samples: training rows, of every policy.
        metrics: what the source reports about it (rewards, turns, drops with reasons, staleness).
    """

    samples: tuple[Sample, ...]
    metrics: Metrics = field(default_factory=dict)

    def of(self, policy: str) -> "Batch":
        """The part of the batch that trains `policy`."""
        return Batch(samples=tuple(s for s in self.samples if s.policy == policy), metrics=self.metrics)


# --------------------------------------------------------------------------------------------------- publishing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """A short fixed sequence and the trainer's log-probs of it, to prove that engines hold the same weights.

    Attributes:
        token_ids: int32 [T].
        logprobs: float32 [T - 1]; entry i is log p(token_ids[i + 1] | token_ids[: i + 1]).
        tolerance: the largest absolute difference that passes, in nats.
    """

    token_ids: Ids
    logprobs: Floats
    tolerance: float = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """New weights of one policy, on their way to the engines.

    Attributes:
        policy: name of the policy.
        version: the policy version that these weights become, >= 0.
        transport: how they travel. `disk`: `payload["directory"]` is a Hugging Face directory that every engine can
            read. `tensor`: `payload["tensors"]` are same-host tensor handles.
        payload: what the transport needs.
        digest: hash of the exported tensors; equal weights give an equal digest.
        probe: proof of delivery.
    """

    policy: str
    version: int
    transport: Literal["disk", "tensor"]
    payload: Mapping[str, Any]
    digest: str
    probe: Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof that a weight update arrived.

    Attributes:
        version: the version now served.
        digest: the update's digest.
        checksum: the engines' own checksum of their weights, on which all agreed.
        engines: who received it.
        missed: engines that did not and were taken out of the router, each with the reason.
        probe_gap: largest absolute log-prob difference between trainer and engines on the probe, in nats.
        seconds: wall time from pause to re-admission.
    """

    version: int
    digest: str
    checksum: str
    engines: tuple[str, ...]
    missed: Mapping[str, str] = field(default_factory=dict)
    probe_gap: float = 0.0
    seconds: float = 0.0


# ---------------------------------------------------------------------------------------------------- protocols


class Chat(Protocol):
    """One recorded model call."""

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> Turn:
        """Ask the model; the ledger keeps the tokens."""
        ...


class SessionAccess(Protocol):
    """What an agent may do with its recording session."""

    @property
    def id(self) -> str:
        """The session key: a capability for this one episode."""
        ...

    @property
    def base_url(self) -> str:
        """The OpenAI base URL of the gateway, ending in `/v1`."""
        ...

    @property
    def chat(self) -> Chat:
        """The same ledger without HTTP."""
        ...

    @property
    def socket_path(self) -> Path | None:
        """The unix socket on which the gateway listens too; None while it does not."""
        ...

    @property
    def replies(self) -> int:
        """Replies recorded so far."""
        ...

    @property
    def failure(self) -> AgarError | None:
        """Why the latest model call got no reply that is not its caller's fault; None where it got one."""
        ...

    def env(self, *, base_url: str | None = None) -> dict[str, str]:
        """Environment variables that point an existing program at the gateway, by another base URL where it has one."""
        ...

    def hang_up(self) -> None:
        """Give up the calls under way, whose callers are known to be gone; one still on its way here is refused."""
        ...

    def pick_up(self) -> None:
        """Take calls again after `hang_up`, from another run of the program; an equal call is a new one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """What an agent says of an episode that it has played.

    Attributes:
        outcome: how an episode ended that the agent left before the environment ended it; None says nothing.
        reason: one line on why.
        meta: JSON-able; goes into the trace.
    """

    outcome: Outcome | None = None
    reason: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class AsyncEnvLike(Protocol):
    """What an agent sees of an environment; observations come as messages."""

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Start an episode. `options["task"]` is the `TaskRow`."""
        ...

    async def astep(self, action: Turn | str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """Take one turn: observation, reward, terminated, truncated, info."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent may call."""
        ...


class Agent(Protocol):
    """Anything that plays one episode."""

    async def play(self, env: AsyncEnvLike, task: TaskRow, session: SessionAccess) -> AgentReport | None:
        """Play until the environment says terminated or truncated."""
        ...


class Engine(Protocol):
    """Tokens in, sampled tokens out."""

    async def generate(self, ids: Ids, sampling: Sampling, *, routing_key: str) -> Sampled:
        """Sample one reply to the prompt `ids`.

        Raises:
            EngineError: the engine failed after its retries.
            DeadlineError: no reply within the client's deadline.
        """
        ...


@runtime_checkable
class SeeingEngine(Protocol):
    """An engine that also takes images."""

    async def generate_seeing(
        self, ids: Ids, sampling: Sampling, *, images: Sequence[str], routing_key: str
    ) -> Sampled:
        """Sample one reply to the prompt `ids`, which holds one placeholder for each image, in order.

        Raises:
            EngineError: the engine failed after its retries.
            DeadlineError: no reply within the client's deadline.
        """
        ...


@runtime_checkable
class TellingEngine(Protocol):
    """An engine that tells of a reply while it samples it."""

    async def generate_telling(
        self,
        ids: Ids,
        sampling: Sampling,
        *,
        images: Sequence[str] = (),
        routing_key: str,
        tell: Callable[[Sequence[int]], None],
    ) -> Sampled:
        """Sample one reply to the prompt `ids`, which holds one placeholder for each image, in order.

        Args:
            ids: int32 [n].
            sampling: sampler and limits.
            images: the images of the prompt.
            routing_key: as in `Engine.generate`.
            tell: called with the ids sampled since the last time, which are and stay the next ones of the reply. Where
                nothing is certain before its end, it is not called.

        Raises:
            EngineError: the engine failed after its retries.
            DeadlineError: no reply within the client's deadline.
        """
        ...


class Receiver(Protocol):
    """The engines' side of a publish; implemented in `rollout/engines`."""

    async def receive(self, update: WeightUpdate) -> Receipt:
        """Bring the weights to every engine and prove it.

        Raises:
            PublishError: no engine serves the new weights, or delivery could not be proven.
        """
        ...


class PolicyTrainer(Protocol):
    """The trainer of one policy."""

    async def step(self, batch: Batch) -> Metrics:
        """One optimiser step over the batch."""
        ...

    async def publish(self, to: Receiver, *, version: int) -> Receipt:
        """Send the current weights to the engines as `version`."""
        ...

    async def save(self, directory: Path) -> None:
        """Write a checkpoint: `hf/` (loads with transformers) and everything needed for an exact resume."""
        ...

    async def load(self, directory: Path) -> None:
        """Restore what `save` wrote."""
        ...


class BatchSource(Protocol):
    """Where batches come from: live rollouts, demonstrations, preferences, saved traces."""

    def running(self, batches: int | None = None) -> AbstractAsyncContextManager[None]:
        """Run the background producer, where there is one, for as long as the context is open.

        Args:
            batches: how many will be asked for; nothing is produced beyond them. None: no end is known.
        """
        ...

    async def next_batch(self, versions: Mapping[str, int]) -> Batch:
        """The next batch of whole groups; every sample within the staleness bound of `versions`."""
        ...

    def publishing(self, versions: Mapping[str, int]) -> AbstractAsyncContextManager[None]:
        """The boundary around a publish: quiet the engines' callers on entry, re-admit them as `versions` on exit."""
        ...

    def state(self) -> bytes:
        """Everything an exact resume needs: cursor, finished groups, tasks in flight, random state."""
        ...

    def load_state(self, state: bytes) -> None:
        """Restore what `state` gave; before `running`."""
        ...
