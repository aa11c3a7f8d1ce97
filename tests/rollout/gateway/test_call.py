from dataclasses import fields, replace
from typing import Any

from agar.rollout.gateway.call import ModelCall, OutputForm
from agar.types import Message, ToolSpec

ASK = Message(role="user", content="Start.")
CALL = ModelCall(
    messages=(ASK,),
    tools=(ToolSpec(name="sh"),),
    respelled=frozenset({0}),
    requested={"temperature": 0.5},
    unknown={"messages[0]": (0, {"name": "someone"})},
    model="main",
    fingerprint=b"1",
    stream=True,
    stream_usage=True,
    n=2,
    stop=("x",),
    max_calls=1,
    form=OutputForm(field="response_format", asked={}, schema="{}"),
    logprobs=True,
    remember=1,
)


def test_a_call_that_has_gone_on_has_all_wishes_of_the_one_before():
    plain = ModelCall(messages=())
    assert [field.name for field in fields(ModelCall) if getattr(CALL, field.name) == getattr(plain, field.name)] == []
    new: dict[str, Any] = {"messages": (ASK, ASK), "respelled": frozenset({1}), "unknown": {}, "fingerprint": b"2"}
    assert CALL.gone_on(**new) == replace(CALL, **new)
