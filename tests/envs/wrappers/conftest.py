"""The same small environment, synchronous and asynchronous, and one way of playing either."""

import pytest

import agar
from agar.envs.runner import as_async


class Counts(agar.Env):
    """Counts turns; ends after five; says what it is told to say."""

    says = "turn"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turns = 0
        return self.says, {}

    def step(self, action):
        self.turns += 1
        return f"{self.says} {self.turns}", 1.0, self.turns == 5, False, {}


class CountsLater(agar.AsyncEnv):
    """The same, asynchronously."""

    says = "turn"
    released = 0

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        self.turns = 0
        return self.says, {}

    async def astep(self, action):
        self.turns += 1
        return f"{self.says} {self.turns}", 1.0, self.turns == 5, False, {}

    async def arelease(self):
        self.released += 1


@pytest.fixture(params=[Counts, CountsLater])
def env(request):
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def play():
    """Play an episode; gives the first observation's text and the results of the steps."""

    async def played(wrapped, *turns, options=None):
        runner = as_async(wrapped)
        first, _ = await runner.areset(options=options)
        results = []
        for turn in turns:
            results.append(await runner.astep(turn))
            if results[-1][2] or results[-1][3]:
                break
        return "".join(message.text for message in first), results

    return played
