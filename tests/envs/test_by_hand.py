"""A person's lines are turns, calls and questions."""

from agar.envs.by_hand import play_by_hand
from agar.envs.registry import make, spec
from agar.envs.runner import as_async


async def by_hand(name, *lines, index=0):
    """Play lines; gives how it went and all that was shown."""
    shown, left = [], list(lines)
    async with as_async(make(name)) as runner:
        played = await play_by_hand(
            runner, spec(name).tasks("train")[index], read=lambda: left.pop(0) if left else None, write=shown.append
        )
    return played, shown


async def test_an_episode_is_played_to_its_end():
    task = spec("Calc-v0").tasks("train")[0]
    answer, expression = task.payload["answer"], task.payload["expression"]
    lines = ("/tools", "/gold", '/call calculate {"expression": "2 + 3"}', "/call nothing", "/gold", f"It is {answer}")
    played, shown = await by_hand("Calc-v0", *lines)
    assert (played.turns, played.reward, played.over) == (3, 1.0, True)
    assert shown[0] == task.prompt
    assert shown[1].startswith("calculate(expression: string): Work out")
    assert shown[2] == f'/call calculate {{"expression": "{expression}"}}'
    assert shown[3] == "tool: 5"
    assert shown[4].startswith("tool: error: no tool 'nothing'")
    assert shown[5] == f"The answer is {answer}."
    assert shown[6:] == ["[reward 1]", "[the end]"]


async def test_a_wrong_line_takes_no_turn():
    played, shown = await by_hand("Calc-v0", "/call calculate {", "/call calculate [1]", "/help", "/quit", "never read")
    assert (played.turns, played.over) == (0, False)
    assert shown[1].startswith("The arguments are not JSON")
    assert shown[2].startswith("The arguments must be an object")
    assert "/quit" in shown[3]


async def test_the_end_of_the_input_and_of_the_turns_are_ends():
    assert not (await by_hand("Guess-v0", "0"))[0].over
    played, shown = await by_hand("Guess-v0", "/tools", *["0"] * 9)
    assert (played.turns, played.over) == (8, True)
    assert shown[1] == "There are no tools."
    assert shown[-1] == "[cut off: max_turns]"
