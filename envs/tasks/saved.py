"""Reading what a cursor saved: what it is not is said, not guessed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agar.errors import ConfigError


def saved(state: Mapping[str, Any], name: str, *, of: str) -> Any:
    """An entry of a saved position.

    Args:
        state: the position.
        name: the entry.
        of: what it should be the position of, for the message.

    Raises:
        ConfigError: it has no such entry.
    """
    if not isinstance(state, Mapping) or name not in state:
        raise ConfigError(f"the saved position is not that of {of} (it has no {name!r}): resume with the same tasks")
    return state[name]


def saved_count(state: Mapping[str, Any], name: str, *, of: str, at_most: int | None = None) -> int:
    """An entry that counts something.

    Raises:
        ConfigError: it is missing, no integer, or not from 0 to `at_most`.
    """
    value = saved(state, name, of=of)
    if type(value) is not int or value < 0 or (at_most is not None and value > at_most):
        expected = "an integer of at least 0" if at_most is None else f"an integer from 0 to {at_most}"
        raise ConfigError(f"the saved position of {of} has {name} {value!r}, expected {expected}: it is damaged")
    return value


def restore(rng: np.random.Generator, state: Mapping[str, Any], *, of: str) -> None:
    """Set a generator to the entry `rng` of a saved position.

    Raises:
        ConfigError: it is missing, or no state of such a generator.
    """
    value = saved(state, "rng", of=of)
    try:
        rng.bit_generator.state = value
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the saved position of {of} has an rng that is none ({error}): it is damaged") from error
