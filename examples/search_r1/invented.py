"""Libraries that do not exist, to warm up on: who has imitated them has learnt to search and to copy, and no answer.

Each is made of the real library's names, put together at random.
"""

from collections.abc import Sequence

import numpy as np

from agar.examples.search_r1.library import Definition, names_of

_MODULES = 6
"""One name in so many is a module's; the others are defined."""


def invent(real: Sequence[Definition], *, seed: int) -> list[Definition]:
    """A library, half of it functions, in the order of its modules.

    Args:
        real: whose names and documentation are used.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    names = names_of(real)
    says = [each.says for each in real]

    def some(count: int) -> list[str]:
        return [names[at] for at in rng.integers(len(names), size=count)]

    shuffled = [names[at] for at in rng.permutation(len(names))]
    modules, own = shuffled[::_MODULES], [name for at, name in enumerate(shuffled) if at % _MODULES]
    made: list[Definition] = []
    for name, other, number in zip(own, some(len(own)), rng.integers(len(modules), size=len(own)), strict=True):
        kind = {"kind": "function", "parameter": other} if len(made) % 2 else {"kind": "class", "base": other}
        text = says[int(rng.integers(len(says)))]
        made.append(Definition(name=name, module=modules[int(number)], says=text, **kind))
    return sorted(made, key=lambda each: each.module)
