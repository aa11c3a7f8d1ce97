"""What goes out is what the official clients' own types say, field by field: they themselves let nearly all pass."""

import json

import anthropic.types as theirs
import httpx
import openai.types as ours
import openai.types.chat as chat
import openai.types.responses as responses
import pytest
from pydantic import TypeAdapter

from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall

ASK = {"role": "user", "content": "Start."}
CALLS = tuple(ToolCall(id="", name="sh", arguments={"n": n}) for n in (1, 2))
REPLIES = {
    "text": "gold",
    "nothing": "",
    "calls": Message(role="assistant", tool_calls=CALLS),
    "everything": Message(role="assistant", content="Both.", reasoning="Hm.", tool_calls=CALLS),
}
BODIES = {
    "/v1/chat/completions": {"messages": [ASK], "n": 2, "logprobs": True},
    "/v1/responses": {"input": "Start."},
    "/v1/messages": {"messages": [ASK], "max_tokens": 8},
}
WHOLE = {
    "/v1/chat/completions": TypeAdapter(chat.ChatCompletion),
    "/v1/responses": TypeAdapter(responses.Response),
    "/v1/messages": TypeAdapter(theirs.Message),
}
EVENT = {
    "/v1/chat/completions": TypeAdapter(chat.ChatCompletionChunk),
    "/v1/responses": TypeAdapter(responses.ResponseStreamEvent),
    "/v1/messages": TypeAdapter(theirs.RawMessageStreamEvent),
}


def events(text: str) -> list[dict]:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("said", REPLIES)
@pytest.mark.parametrize("max_tokens", [128, 3])
async def test_replies_and_events_are_of_the_clients_own_types(family, scripted, path, said, max_tokens):
    engine = scripted(REPLIES[said])
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway, httpx.AsyncClient() as http:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=max_tokens), max_turns=1)
        url = session.path_url.removesuffix("/v1") + path
        for user in ("first", "stopped by the budget"):
            body = BODIES[path] | {"user": user}
            whole = (await http.post(url, json=body)).json()
            assert WHOLE[path].validate_python(whole, strict=False).id == whole["id"]
            options = {"stream_options": {"include_usage": True}} if "chat" in path else {}
            streamed = events((await http.post(url, json=body | {"stream": True} | options)).text)
            assert streamed
            for event in streamed:
                EVENT[path].validate_python(event)


async def test_lists_counts_and_errors_are_of_the_clients_own_types(gateway):
    session = gateway.open(policy="main", sampling=Sampling())
    async with httpx.AsyncClient() as http:
        rows = (await http.get(f"{session.path_url}/models")).json()["data"]
        assert [ours.Model.model_validate(row).id for row in rows] == ["main"]
        headers = {"anthropic-version": "2023-06-01"}
        rows = (await http.get(f"{session.path_url}/models", headers=headers)).json()["data"]
        assert [theirs.ModelInfo.model_validate(row).id for row in rows] == ["main"]
        counted = await http.post(f"{session.path_url}/messages/count_tokens", json={"messages": [ASK]})
        assert theirs.MessageTokensCount.model_validate(counted.json()).input_tokens > 0
        refused = await http.post(f"{session.path_url}/messages", json={})
        assert theirs.ErrorResponse.model_validate(refused.json()).error.type == "invalid_request_error"
        refused = await http.post(f"{session.path_url}/chat/completions", json={})
        assert ours.ErrorObject.model_validate(refused.json()["error"]).param == "messages"
    assert session.seal().nodes == ()
