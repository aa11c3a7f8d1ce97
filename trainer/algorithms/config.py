"""Settings of the policy-gradient algorithms; the class defaults are the vetted ones.

`AlgorithmConfig` is a union told apart by `type`. What an algorithm *is* (its baseline, its ratio, its surrogate) is
fixed in the class; what one tunes is a field. Formulas and sources: `docs/algorithms.md`.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from agar.config import BaseConfig

Reduction = Literal["trajectory_mean", "token_mean", "constant"]
Level = Literal["token", "sequence", "geometric"]


class TisConfig(BaseConfig):
    """Truncated importance sampling: the weight trainer / engine is capped, every token stays."""

    type: Literal["tis"] = "tis"
    level: Level = "token"
    """`token`: each token's own weight; `sequence`: the product over the row; `geometric`: its per-token mean."""
    low: float = Field(0.0, ge=0)
    """Smallest weight."""
    high: float = Field(2.0, gt=0)
    """Largest weight."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_bounds(self.low, self.high)
        return self


class MisConfig(BaseConfig):
    """Masked importance sampling: weights outside the bounds are removed (or capped), per token or per row."""

    type: Literal["mis"] = "mis"
    level: Level = "sequence"
    """`token`: each token's own weight; `sequence`: the product over the row; `geometric`: its per-token mean."""
    mode: Literal["mask", "truncate", "clip"] = "mask"
    """`mask`: 0 outside [low, high]; `truncate`: at most high; `clip`: into [low, high]."""
    low: float = Field(0.0, ge=0)
    """Lower bound of the weight."""
    high: float = Field(2.0, gt=0)
    """Upper bound of the weight."""
    veto: float | None = Field(None, gt=0, lt=1)
    """Remove a whole row if one of its tokens has a weight below this."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_bounds(self.low, self.high)
        return self


class IcepopConfig(BaseConfig):
    """IcePop: a token whose weight leaves [low, high] is removed; inside, the weight is applied."""

    type: Literal["icepop"] = "icepop"
    low: float = Field(0.5, ge=0)
    """Lower bound of the weight."""
    high: float = Field(5.0, gt=0)
    """Upper bound of the weight."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_bounds(self.low, self.high)
        return self


CorrectionConfig = Annotated[TisConfig | MisConfig | IcepopConfig, Field(discriminator="type")]


class PolicyGradientConfig(BaseConfig):
    """What every policy-gradient algorithm shares; use one of its subclasses."""

    needs_group: ClassVar[bool] = True
    """True where a group of one gives no signal, so that `group_size` must be at least 2."""
    baseline: ClassVar[Literal["mean", "leave_one_out", "none"]] = "mean"
    """What is subtracted from a trajectory's reward."""
    whitened: ClassVar[bool] = False
    """True where advantages are normalised over the batch's trained tokens."""
    ratio: ClassVar[Literal["token", "sequence"]] = "token"
    """Whether the importance ratio is a token's own or the geometric mean of its row."""
    surrogate: ClassVar[Literal["clip", "cispo"]] = "clip"
    """The form of the policy loss."""

    divide_by_std: bool = False
    """Divide a group's centred rewards by their sample standard deviation."""
    clip_low: float = Field(0.2, gt=0)
    """The ratio is clipped from below at 1 - clip_low."""
    clip_high: float = Field(0.28, gt=0)
    """The ratio is clipped from above at 1 + clip_high."""
    dual_clip: float | None = Field(None, gt=1)
    """For negative advantages the loss is at most dual_clip times |advantage|."""
    reduction: Reduction = "token_mean"
    """How token losses add up to the step's loss."""
    constant_tokens: int = Field(1024, ge=1)
    """Tokens per trajectory by which the `constant` reduction divides: the budget of an episode's replies."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the reference policy in the loss; above 0, samples need reference log-probs, which a recipe
    cannot give yet, and refuses."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL. The gradient of a plain k1 is zero in expectation: use it with `kl_unbiased`."""
    kl_unbiased: bool = False
    """Multiply the estimator by the importance ratio, which makes value and gradient unbiased."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""
    old_logprobs: Literal["engine", "trainer"] = "engine"
    """Whose log-probs stand below the ratio: the engine's own, or the trainer's before the step."""
    correction: CorrectionConfig | None = None
    """Correction of the gap between trainer and engine; needs `old_logprobs = "trainer"`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.correction is not None and self.old_logprobs != "trainer":
            raise ValueError(
                f"correction = {self.correction.type!r} weighs the trainer's old log-probs against the engine's, but "
                'old_logprobs is "engine": set old_logprobs = "trainer"'
            )
        if self.dual_clip is not None and self.surrogate == "cispo":
            raise ValueError("dual_clip has no meaning for cispo, whose gradient is bounded already: remove it")
        return self


class GrpoConfig(PolicyGradientConfig):
    """GRPO (arXiv:2402.03300) with DAPO's clip-higher and token mean (arXiv:2503.14476), no KL."""

    type: Literal["grpo"] = "grpo"
    divide_by_std: bool = True


class DrGrpoConfig(PolicyGradientConfig):
    """Dr. GRPO (arXiv:2503.20783): no division by the deviation, a constant instead of lengths."""

    type: Literal["dr_grpo"] = "dr_grpo"
    reduction: Reduction = "constant"


class RlooConfig(PolicyGradientConfig):
    """RLOO (arXiv:2402.14740): the baseline is the mean of the group's other trajectories."""

    baseline: ClassVar[Literal["mean", "leave_one_out", "none"]] = "leave_one_out"

    type: Literal["rloo"] = "rloo"


class ReinforcePlusPlusConfig(PolicyGradientConfig):
    """REINFORCE++ (arXiv:2501.03262) with discount 1: rewards normalised over the batch; needs no groups."""

    needs_group: ClassVar[bool] = False
    baseline: ClassVar[Literal["mean", "leave_one_out", "none"]] = "none"
    whitened: ClassVar[bool] = True

    type: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"

    @model_validator(mode="after")
    def _no_group_deviation(self) -> Self:
        if self.divide_by_std:
            raise ValueError("reinforce_plus_plus has no groups to take a deviation of: remove divide_by_std")
        return self


class ReinforcePlusPlusBaselineConfig(PolicyGradientConfig):
    """REINFORCE++ with the group mean as baseline (arXiv:2501.03262), then normalised over the batch."""

    whitened: ClassVar[bool] = True

    type: Literal["reinforce_plus_plus_baseline"] = "reinforce_plus_plus_baseline"


class GspoConfig(PolicyGradientConfig):
    """GSPO (arXiv:2507.18071): the ratio of a whole row, per-token geometric mean, with its narrow clip."""

    ratio: ClassVar[Literal["token", "sequence"]] = "sequence"

    type: Literal["gspo"] = "gspo"
    divide_by_std: bool = True
    clip_low: float = Field(3e-4, gt=0)
    clip_high: float = Field(4e-4, gt=0)
    reduction: Reduction = "trajectory_mean"


class CispoConfig(PolicyGradientConfig):
    """CISPO (arXiv:2506.13585): the clipped ratio is a constant weight; no lower bound, at most 5."""

    surrogate: ClassVar[Literal["clip", "cispo"]] = "cispo"

    type: Literal["cispo"] = "cispo"
    divide_by_std: bool = True
    clip_low: float = Field(1.0, gt=0)
    clip_high: float = Field(4.0, gt=0)


AlgorithmConfig = Annotated[
    GrpoConfig
    | DrGrpoConfig
    | RlooConfig
    | ReinforcePlusPlusConfig
    | ReinforcePlusPlusBaselineConfig
    | GspoConfig
    | CispoConfig,
    Field(discriminator="type"),
]
"""Any algorithm, told apart by `type`."""


def _check_bounds(low: float, high: float) -> None:
    if low >= high:
        raise ValueError(f"low must be below high, got low = {low} and high = {high}: swap or widen them")
