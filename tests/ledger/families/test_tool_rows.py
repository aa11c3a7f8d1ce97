import json

import pytest

from agar.ledger.families.model import ChatModel
from agar.ledger.families.templated import TemplateFamily
from agar.ledger.families.tool_rows import ToolRows, each_string
from agar.ledger.tokenizer import Tokenizer
from agar.types import Message, ToolSpec

LOOK = ToolSpec(name="look", description="Look <here>, dé.", parameters={"type": "object", "properties": {"<x>": {}}})
REST = ToolSpec(name="rest")


def quote(text):
    return text.replace("<", "&")


def test_rows_are_quoted_and_those_of_the_very_same_tools_are_kept():
    rows, tools = ToolRows(quote), (LOOK,)
    told = rows.of(tools)
    function = {"name": "look", "description": "Look &here>, dé."}
    function["parameters"] = {"type": "object", "properties": {"&x>": {}}}
    assert list(told) == [{"type": "function", "function": function}]
    assert rows.of(tools) is told
    assert rows.of((LOOK,)) is not told
    assert rows.of((LOOK,)) == told


def test_of_a_list_nothing_is_kept_since_it_may_change():
    rows, tools = ToolRows(quote), [LOOK]
    rows.of(tools)
    tools[0] = REST
    assert rows.of(tools)[0]["function"]["name"] == "rest"


def test_what_is_written_of_a_row_is_written_once_in_each_form():
    rows, written = ToolRows(quote), []

    def write(value, how):
        return rows.written(value, how, lambda: written.append((value, how)) or f"{len(written)}")

    row = rows.of((LOOK, REST))[1]
    assert [write(row, "a"), write(row["function"], "a"), write(row, "b"), write(row, "a")] == ["1", "2", "3", "1"]
    assert [write({}, "a"), write({}, "a"), write(dict(row), "a")] == ["4", "5", "6"]
    again = rows.of((LOOK, REST))[1]
    assert again == row
    assert [write(again, "a"), write(row, "a"), write(row, "a")] == ["7", "8", "9"]


def test_each_string_of_a_value_is_changed():
    assert each_string({"a": ["b", 1, None, ("c",)], "d": {"e": True}}, str.upper) == {
        "A": ["B", 1, None, ["C"]],
        "D": {"E": True},
    }


class AnyFamily(TemplateFamily):
    name, stops, needs = "any", (), ()


TEMPLATE = """{% for t in tools or [] %}{{ t | tojson(FORM) }}{{ (t.function or t) | tojson(FORM) }}{% endfor -%}
{% for m in messages %}{{ m.content }}{% endfor %}"""


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("", {}),
        ("indent=2", {"indent": 2}),
        ("separators=[',', ':']", {"separators": (",", ":")}),
        ("sort_keys=true", {"sort_keys": True}),
        ("ensure_ascii=true", {"ensure_ascii": True}),
    ],
)
def test_a_template_writes_the_tools_of_every_call_alike(model_of, form, options):
    tokenizer = Tokenizer.load(model_of("qwen3"))
    family = AnyFamily(ChatModel(tokenizer=tokenizer, template=TEMPLATE.replace("FORM", form)))
    for tools in ((LOOK, REST), (REST,), (LOOK, REST)):
        expected = ""
        for tool in tools:
            function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for row in ({"type": "function", "function": function}, function):
                expected += json.dumps(row, **{"ensure_ascii": False} | options)
        for _ in range(2):
            ids = family.render([Message(role="user", content=".")], tools)
            assert tokenizer.decode(ids) == expected + "."
