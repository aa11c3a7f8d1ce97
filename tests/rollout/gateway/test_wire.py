from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.wire import NotServed, Reader, Rows, StopText, Wire, unknown_fields


class Words(Wire):
    type: Literal["words"]
    words: StopText


class Picture(Wire):
    type: Literal["picture"]
    size: int


class Row(Wire):
    content: str | list[Annotated[Words | Picture, Field(discriminator="type")]] | None = None


class Request(Wire):
    rows: Annotated[list[Any], Rows(Row)]
    best: Row | None = None
    count: int | None = Field(default=None, ge=1)
    stream: bool | None = None
    plugins: NotServed = None


READER: Reader[Request] = Reader(Request)
ROW: Reader[Row] = Reader(Row)


@pytest.mark.parametrize(
    ("value", "param", "told"),
    [
        (3, None, "the body: input should be an object, got 3"),
        ({}, "rows", "it is missing"),
        ({"rows": {}}, "rows", "got an object"),
        ({"rows": [], "count": True}, "count", "got True"),
        ({"rows": [], "count": 0}, "count", "greater than or equal to 1, got 0"),
        ({"rows": [], "stream": "yes"}, "stream", "got 'yes'"),
        ({"rows": [], "plugins": []}, "plugins", "it is not served here: leave it out"),
        ({"rows": [], "best": {"content": 3}}, "best.content", "valid string, got 3; or input should be a valid list"),
        ({"rows": [], "best": {"content": [{"type": "sound"}]}}, "best.content[0].type", "'words', 'picture'"),
        ({"rows": [], "best": {"content": [{}]}}, "best.content[0].type", "discriminator"),
        ({"rows": [], "best": {"content": [{"type": "words"}]}}, "best.content[0].words", "it is missing"),
        ({"rows": [], "best": {"content": [{"type": "words", "words": ""}]}}, "best.content[0].words", "1 character"),
        ({"rows": [], "best": {"content": "x" * 999, "y": 1}, "count": "z" * 999}, "count", "'" + "z" * 80 + "'"),
    ],
)
def test_a_refusal_names_the_field_that_was_meant_and_what_came(value, param, told):
    with pytest.raises(BadRequest) as caught:
        READER.read(value)
    assert caught.value.param == param
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_refusal_begins_at_the_place_of_its_row():
    with pytest.raises(BadRequest) as caught:
        ROW.read({"content": [{"type": "picture", "size": "big"}]}, "rows[7]")
    assert caught.value.param == "rows[7].content[0].size"


def test_rows_are_left_for_later_and_shown_in_the_schema():
    assert READER.read({"rows": [3, {"content": 3}]}).rows == [3, {"content": 3}]
    items = Request.model_json_schema()["properties"]["rows"]["items"]
    assert set(items["properties"]) == {"content"}


def test_unknown_fields_are_found_at_any_depth_and_null_is_none():
    read = ROW.read(
        {"content": [{"type": "words", "words": "a", "mood": 1, "tone": None}], "model_extra": 2, "copy": 3}
    )
    assert unknown_fields(read) == {"content[0].mood": 1, "model_extra": 2, "copy": 3}
    assert unknown_fields(ROW.read({"content": "a"})) == {}
