"""The house keeps its rules, and only memory opens the vault."""

import numpy as np

from agar.envs.library.keys import Keys, draw, exits, tasks
from agar.types import TaskRow

HOUSE = {  # 0-1-2 in a row, 2 above 5, 5 above 8; all the others hang on 0 by 3
    "start": 0, "key": 1, "note": 2, "vault": 5, "code": 321,
    "doors": [[0, 1], [0, 3], [1, 2], [2, 5], [3, 4], [3, 6], [5, 8], [6, 7]],
}  # fmt: skip


def enter():
    env = Keys()
    first, _ = env.reset(seed=1, options={"task": TaskRow(key="h", payload=HOUSE)})
    return env, first


def test_a_house_is_played_to_its_end():
    env, first = enter()
    assert first.endswith("The red room. Exits: east, south.")
    heard = [env.step(said)[0] for said in ("go east", "take key", "I go on.\nGo East!", "read note", "go south")]
    assert heard == [
        "The blue room. A key hangs on the wall. Exits: east, west.",
        "You take the key.",
        "The green room. A note lies on the floor. Exits: south, west.",
        "It says: the code is 321. The note crumbles to dust.",
        "The yellow room. Here is the vault. Exits: north, south.",
    ]
    assert env.step("unlock 321")[1:4] == (1.0, True, False)


def test_nothing_can_be_done_twice_or_elsewhere():
    env, _ = enter()
    for said in ("go west", "take key", "read note", "unlock 321", "", "dance"):
        assert env.step(said) == ("That cannot be done here.", 0.0, False, False, {})
    env.step("go east")
    env.step("take key")
    assert env.step("take key")[0] == "That cannot be done here."
    env.step("go east")
    env.step("read note")
    assert env.step("read note")[0] == "That cannot be done here."
    env.step("go south")
    assert env.step("unlock 322")[1:4] == (0.0, True, False)


def test_without_the_key_the_vault_stays_shut():
    env, _ = enter()
    for said in ("go east", "go east", "go south"):
        env.step(said)
    assert env.step("unlock 321")[0] == "That cannot be done here."


def test_every_house_can_be_won_within_the_turns_and_all_rooms_are_connected():
    env = Keys()
    for index in range(60):
        env.reset(seed=0, options={"task": tasks("train")[index]})
        turns = 0
        while not env.step(env.gold())[2]:
            turns += 1
        assert turns < 40
    for seed in range(60):
        world = draw(np.random.default_rng(seed))[1]
        assert len({world[name] for name in ("start", "key", "note", "vault")}) == 4
        reached, queue = set(), [0]
        while queue:
            room = queue.pop()
            if room not in reached:
                reached.add(room)
                queue += exits(room, world["doors"]).values()
        assert len(reached) == 9
        assert len(world["doors"]) == 8
