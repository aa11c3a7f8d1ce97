from agar.rollout.gateway.answers import turn_of
from agar.rollout.gateway.call import ModelCall
from agar.types import Finish, Message, ToolCall, Turn

CALLS = tuple(ToolCall(id=f"call_{n}", name="sh", arguments={"n": n}) for n in range(3))
SAID = Turn(text="Look. STOP Then END.", reasoning="Hm.", tool_calls=CALLS)


def asked(**fields) -> ModelCall:
    return ModelCall(messages=(Message(role="user", content="Start."),), **fields)


def test_the_engine_says_how_it_ended():
    turn, stopped_by = turn_of(SAID, Finish.LENGTH, asked())
    assert turn.tool_calls == CALLS
    assert (turn.finish, turn.text, stopped_by) == (Finish.LENGTH, SAID.text, None)


def test_withheld_calls_are_named_beside_what_else_went_wrong():
    turn, _ = turn_of(Turn(tool_calls=CALLS, parse_error="a bad call"), Finish.STOP, asked(max_calls=1))
    assert [call.arguments for call in turn.tool_calls] == [{"n": 0}]
    assert turn.parse_error is not None
    assert turn.parse_error.startswith("a bad call; ")
    assert 'sh({"n":1}), sh({"n":2}) withheld' in turn.parse_error
    assert turn_of(Turn(tool_calls=CALLS), Finish.STOP, asked(max_calls=3))[0].parse_error is None


def test_the_first_text_that_ends_a_reply_counts_wherever_it_stands_in_the_request():
    turn, stopped_by = turn_of(SAID, Finish.LENGTH, asked(stop=("END", "STOP")))
    assert (turn.text, stopped_by, turn.finish) == ("Look. ", "STOP", Finish.STOP)
    assert turn.reasoning == "Hm."


def test_a_text_that_ends_the_reasoning_leaves_nothing_after_it():
    turn, stopped_by = turn_of(SAID, Finish.STOP, asked(stop=("m.",)))
    assert (turn.reasoning, turn.text, turn.tool_calls, stopped_by) == ("H", "", (), "m.")


def test_a_text_that_never_came_ends_nothing():
    assert turn_of(Turn(text="gold"), Finish.LENGTH, asked(stop=("silver",))) == (
        Turn(text="gold", finish=Finish.LENGTH),
        None,
    )
