import gc
import json
import random
import tracemalloc

import numpy as np

from agar.ledger.toy import ToyEngine
from agar.rollout.gateway.chat_completions import CHAT_COMPLETIONS
from agar.rollout.gateway.server import Gateway
from agar.rollout.gateway.translation import ToolCache
from agar.types import Sampling

TOKENS = 32_768
MEGABYTES = 2.0


async def test_a_session_of_32k_tokens_holds_less_than_two_megabytes(family):
    """As programs play it: the whole history comes with every call, as JSON, and every text is new."""
    draw = random.Random(1)
    tokens = 0

    def reply(prompt):
        nonlocal tokens
        said = family.tokenizer.encode(f"box {draw.randrange(10**9)} {'looks around ' * 40}")
        ids = np.append(said, family.stop_ids[0])
        tokens = len(prompt) + len(ids)
        return ids

    async def play(session, tools):
        history = [{"role": "user", "content": "Start."}]
        while tokens < TOKENS:
            body = json.dumps({"model": "main", "messages": history}).encode()
            answer = await session.call(CHAT_COMPLETIONS.read(body, tools, session.messages))
            said = json.loads(CHAT_COMPLETIONS.write(answer, "main", session.messages))
            result = f"{draw.randrange(10**9)} {'says what it has found there ' * 60}"
            history += [said["choices"][0]["message"], {"role": "user", "content": result}]

    engine = ToyEngine(reply)
    session = Gateway(engines={"main": engine}, families={"main": family}).open(
        policy="main", sampling=Sampling(max_tokens=4096)
    )
    tracemalloc.start()
    try:
        await play(session, ToolCache())
        engine.prompts.clear()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(session.seal().nodes) > 32
    assert held < MEGABYTES * 1e6
