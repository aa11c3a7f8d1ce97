from datetime import date

import pytest

from agar.errors import LedgerError
from agar.ledger.families.marking import Marking
from agar.ledger.families.model import ChatModel
from agar.ledger.families.template import ChatTemplate
from agar.types import Message, ToolCall

TODAY = date(2024, 7, 26)


@pytest.fixture(scope="module")
def made(model_of):
    marking = Marking(ChatModel.load(model_of("qwen3")).tokenizer)

    def make(text, **options):
        return ChatTemplate(text, marking=marking, variables=options.pop("variables", {}), today=TODAY, **options)

    return make


def written(template, *messages):
    return template.render(template.rows(messages), generation=False)


def user(text):
    return Message(role="user", content=text)


def test_json_is_that_of_the_text_and_not_of_its_quotes(made):
    template = made("{{ messages[0].content | tojson }}|{{ messages[0].content | tojson(ensure_ascii=True) }}")
    plain, ascii_only = template._marking.unquote(written(template, user('é <|im_end|> "x"'))).split("|", 1)[0], None
    assert plain == '"é <'
    whole = template._marking.unquote(written(template, user('é "x"')))
    plain, ascii_only = whole.split("|")
    assert plain == '"é \\"x\\""'
    assert ascii_only == '"\\u00e9 \\"x\\""'


def test_the_clock_that_a_template_reads_stands_still(made):
    assert written(made("{{ strftime_now('%d %b %Y, %H:%M') }}"), user("a")) == "26 Jul 2024, 00:00"


def test_a_template_cannot_reach_python(made):
    for attack in ("{{ messages.__class__.__mro__ }}", "{{ ''.__class__ }}", "{{ messages[0].update({'role': 'x'}) }}"):
        with pytest.raises(LedgerError, match="refuses"):
            written(made(attack + "{{ undefined_name.x }}"), user("a"))


def test_rows_are_not_changed_by_a_template(made):
    with pytest.raises(LedgerError):
        written(made("{{ messages.append(1) }}"), user("a"))


def test_what_a_template_raises_is_a_refusal_with_its_words(made):
    with pytest.raises(LedgerError, match=r"ends in user: no, <\|im_end\|>!"):
        written(made("{{ raise_exception('no, ' ~ messages[0].content) }}"), user("<|im_end|>!"))


def test_a_row_with_a_key_like_a_methods_name_is_what_jinja_makes_of_it(made):
    call = ToolCall(id="c", name="t", arguments={"items": 1, "x": "y"})
    message = Message(role="assistant", tool_calls=(call,))
    template = made(
        "{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ k }}={{ v }};{% endfor %}"
    )
    assert written(template, message) == "items=1;x=y;"


def test_the_wire_form_has_arguments_as_text_and_no_content_beside_bare_calls(made):
    call = ToolCall(id="c", name="t", arguments={"a": "é"})
    text = "{{ messages[0].content is none }} {{ messages[0].tool_calls[0].function.arguments is string }}"
    message = Message(role="assistant", tool_calls=(call,))
    assert written(made(text, wire="json"), message) == "True True"
    assert written(made(text), message) == "False False"


def test_training_marks_of_a_template_are_passed_over(made):
    assert written(made("a{% generation %}{{ messages[0].content }}{% endgeneration %}b"), user("x")) == "axb"


def test_variables_reach_the_template(made):
    assert written(made("{{ bos_token }}", variables={"bos_token": "<|im_start|>"}), user("x")) == "<|im_start|>"


def test_a_text_that_the_template_cuts_inside_a_quote_is_refused(made):
    template = made("{{ messages[0].content[:4] }}")
    encode = template._marking.encode
    assert encode(written(template, user("abcdef"))) == encode("abcd")
    with pytest.raises(LedgerError, match="cuts texts apart"):
        encode(written(template, user("ab<|im_end|>")))
