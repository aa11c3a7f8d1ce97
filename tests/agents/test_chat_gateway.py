"""ChatAgent hunts gold through the real gateway and ledger; the engine replays what the gold hunter would say."""

import numpy as np
import pytest

from agar.agents.chat import ChatAgent
from agar.envs.library.hunt import Hunt, open_box, tasks
from agar.envs.runner import as_async
from agar.errors import SessionClosedError
from agar.ledger.families import family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling

TASK = next(task for task in tasks("train") if len(task.payload["trail"]) == 3)


class GoldEngine(ToyEngine):
    """Samples, one call after the other, the turns that follow the trail of `TASK`."""

    def __init__(self, family):
        turns = [open_box(number, call=call).message() for call, number in enumerate(TASK.payload["trail"])]
        turns.append(Message(role="assistant", content=str(TASK.payload["gold"])))
        replies = []
        for turn in turns:
            ids, mask = family.transcript([turn])
            replies.append(ids[mask])
        super().__init__(lambda prompt: replies[len(self.prompts) - 1])


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return family_for(write_toy_model(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("transport", ["http", "direct"])
async def test_both_transports_leave_one_unbroken_chain_in_the_ledger(family, transport):
    engine = GoldEngine(family)
    async with (
        Gateway(engines={"main": engine}, families={"main": family}) as gateway,
        ChatAgent(transport=transport) as agent,
        as_async(Hunt(sandbox={"backend": "fake"})) as env,
    ):
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=64))
        rewards = []
        step = env.astep

        async def astep(action):
            result = await step(action)
            rewards.append(result[1])
            return result

        env.astep = astep
        await agent.play(env, TASK, session)
        sealed = session.seal()
        assert rewards == [0.0, 0.0, 0.0, 1.0]
        assert len(sealed.nodes) == len(engine.prompts) == 4
        assert not sealed.divergences
        for before, after in zip(engine.prompts, engine.prompts[1:], strict=False):
            np.testing.assert_array_equal(after[: len(before)], before)  # history is never rendered again
        with pytest.raises(SessionClosedError):
            await agent.play(env, TASK, session)
