import pytest
from pydantic import ValidationError

from agar.errors import ConfigError, LedgerError
from agar.ledger.canonicalisers import BUILT_IN, Canonicaliser, canonicaliser_of
from agar.ledger.config import CanonicaliserConfig


def text_of(text, *, role="system", **rule):
    return Canonicaliser([CanonicaliserConfig(**({"name": "rule"} | rule))]).text(role, text)


@pytest.mark.parametrize(
    ("name", "one", "other", "third"),
    [
        ("clock", "It is 2026-11-30T09:41:07Z. Go.", "It is 2026-12-01 00:00. Go.", "It is noon. Go."),
        (
            "uuid",
            "id 9b2f6c1e-0f5a-4c58-9a53-2f4f0c6f5a11, go",
            "id 00000000-0000-4000-8000-000000000000, go",
            "id 9b2f6c1e, go",
        ),
        (
            "billing_header",
            "x-example-billing-header: a=1; b=2f\nYou are helpful.",
            "x-example-billing-header: a=1; b=07\nYou are helpful.",
            "You are helpless.",
        ),
    ],
)
def test_built_in_rules_ignore_what_they_are_named_for_and_nothing_else(name, one, other, third):
    assert name in BUILT_IN
    assert text_of(one, name=name) == text_of(other, name=name) != text_of(third, name=name)


def test_a_rule_looks_at_the_roles_that_it_names(tmp_path):
    assert text_of("a 1 b", pattern=r"\d") == "a  b"
    assert text_of("a 1 b", pattern=r"\d", role="tool") == "a 1 b"
    assert text_of("a 1 b", pattern=r"\d", role="tool", roles=("tool", "user")) == "a  b"


def test_a_function_is_found_by_its_name():
    assert text_of("é", function="unicodedata:name") == "LATIN SMALL LETTER E WITH ACUTE"


def test_a_function_that_raises_or_gives_no_text_is_named():
    with pytest.raises(LedgerError, match="'rule' raised"):
        text_of("two", function="unicodedata:name")
    with pytest.raises(LedgerError, match="gave a int"):
        text_of("a", function="builtins:ord")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"name": "nonsense"}, "none of the built-in ones"),
        ({"function": "agar.nowhere:f"}, "was not found"),
        ({"function": "builtins:nothing"}, "was not found"),
    ],
)
def test_a_rule_that_is_not_there_is_refused(rule, message):
    with pytest.raises(ConfigError, match=message):
        text_of("", **rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"pattern": "("}, "no regular expression"),
        ({"pattern": "a", "function": "a:b"}, "keep one of them"),
        ({"roles": ()}, "roles"),
        ({"name": "Two words"}, "name"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_with_the_settings(rule, message):
    with pytest.raises(ValidationError, match=message):
        CanonicaliserConfig(**({"name": "rule"} | rule))


def test_rules_are_compiled_once_and_apply_one_after_the_other():
    rules = (CanonicaliserConfig(name="a", pattern="b"), CanonicaliserConfig(name="c", pattern="ac"))
    assert canonicaliser_of(rules) is canonicaliser_of(rules)
    assert canonicaliser_of(rules).text("system", "abc") == ""
    assert not canonicaliser_of(())
