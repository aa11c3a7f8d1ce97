"""The base of every settings class: frozen, typed, unknown keys refused.

Each room keeps its settings in its own `config.py`, which imports this module and nothing heavier than pydantic, so
that a laptop validates a cluster's recipe.
"""

from pydantic import BaseModel, ConfigDict


class BaseConfig(BaseModel):
    """Frozen settings; an unknown key is an error, and so is a number that is not finite: "no limit" is None."""

    # Defaults are not validated: a strict reading would refuse those that JSON has no word for, such as paths.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
