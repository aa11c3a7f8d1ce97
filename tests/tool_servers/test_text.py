"""Halves of surrogate pairs, and what is no such thing."""

from pydantic import BaseModel

from agar.tool_servers.text import Text, sendable


def test_half_a_pair_becomes_a_question_mark_and_a_whole_character_stays():
    assert sendable("a\ud800b\udfffc") == "a?b?c"
    assert sendable("\U0001f600 漢 \0") == "\U0001f600 漢 \0"


def test_a_field_of_a_reply_is_cleaned_however_deep_it_lies():
    class Reply(BaseModel):
        text: Text
        parts: list[dict[Text, Text | None]]

    reply = Reply.model_validate({"text": "\ud800", "parts": [{"\ud800": None, "b": "\udfff"}]})
    assert reply.model_dump_json() == '{"text":"?","parts":[{"?":null,"b":"?"}]}'
