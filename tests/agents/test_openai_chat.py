"""Messages, tools and turns in the form of chat completions."""

from types import SimpleNamespace

import pytest

from agar.agents.openai_chat import OpenAIClient, to_openai, tool_to_openai, turn_from_openai
from agar.errors import EngineError
from agar.types import ImagePart, Message, TextPart, ToolSpec


def test_images_and_texts_travel_as_parts():
    message = Message(role="user", content=(TextPart(text="what is it?"), ImagePart(url="data:image/png;base64,AA")))
    assert to_openai(message) == {
        "role": "user",
        "content": [
            {"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        ],
    }


def test_what_a_message_does_not_have_is_left_out():
    assert to_openai(Message(role="assistant", content="hm", reasoning="")) == {
        "role": "assistant",
        "content": "hm",
        "reasoning_content": "",
    }
    assert to_openai(Message(role="user")) == {"role": "user", "content": ""}


def test_a_tool_is_a_function():
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
    assert tool_to_openai(ToolSpec(name="look", description="Look.", parameters=parameters)) == {
        "type": "function",
        "function": {"name": "look", "description": "Look.", "parameters": parameters},
    }


def test_a_completion_without_a_choice_is_no_reply():
    with pytest.raises(EngineError, match="no choice"):
        turn_from_openai(SimpleNamespace(choices=[]))


async def test_a_closed_client_opens_again_when_it_is_asked():
    client = OpenAIClient(model="m", timeout_s=1.0, max_retries=0)
    await client.aclose()
    session = SimpleNamespace(id="key", base_url="http://127.0.0.1:9/v1")
    for _ in range(2):
        with pytest.raises(EngineError, match="cannot be reached"):
            await client.chat(session)([Message(role="user", content="hi")])
        await client.aclose()
        await client.aclose()
