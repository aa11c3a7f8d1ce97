import pytest

from agar.ledger.families.arguments import typed
from agar.types import ToolSpec

SCHEMAS = {
    "text": {"type": "string"},
    "maybe": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "colour": {"enum": ["red", "5"]},
    "level": {"enum": [1, 2]},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array"},
    "map": {"type": "object"},
    "odd": {"title": "no type"},
    "broken": "not a schema",
}
TOOL = ToolSpec(name="t", parameters={"type": "object", "properties": SCHEMAS})


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("text", ' "quoted" ', ' "quoted" '),
        ("maybe", "null", None),
        ("maybe", "5", "5"),
        ("either", "5", "5"),
        ("colour", "5", "5"),
        ("level", "2", 2),
        ("count", "5", 5),
        ("count", "five", "five"),
        ("share", "5", 5),
        ("share", "0.5", 0.5),
        ("share", "NaN", "NaN"),
        ("flag", "true", True),
        ("flag", "True", True),
        ("flag", "yes", "yes"),
        ("list", "[1, 'a']", [1, "a"]),
        ("list", '["a"', '["a"'),
        ("list", "(1, ('a',))", [1, ["a"]]),
        ("list", '["\\ud800"]', '["\\ud800"]'),
        ("list", "['\\ud83d\\ude00']", ["😀"]),
        ("map", "{'\\ud800': 1}", "{'\\ud800': 1}"),
        ("map", "{True: 1, 2: None}", {"true": 1, "2": None}),
        ("map", "{(1, 2): 3}", "{(1, 2): 3}"),
        ("map", '{"a": null}', {"a": None}),
        ("map", "{1, 2}", "{1, 2}"),
        ("map", "b'x'", "b'x'"),
        ("odd", "5", 5),
        ("odd", '"5"', '"5"'),
        ("odd", "None", None),
        ("broken", "x", "x"),
        ("unknown", "1e400", "1e400"),
        ("unknown", "[" * 300, "[" * 300),
    ],
)
def test_a_value_is_what_the_schema_says_it_is(argument, text, value):
    got = typed(text, "t", argument, [TOOL])
    assert (got, type(got)) == (value, type(value))


def test_without_the_tool_the_text_decides():
    assert typed("5", "other", "text", [TOOL]) == 5
    assert typed("five", "t", "text", []) == "five"
    assert typed("5", "t", "a", [ToolSpec(name="t", parameters={"properties": "?"})]) == 5
