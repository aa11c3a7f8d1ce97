import pytest
from tests.ledger.families.conftest import HERE, TOKENS

from agar.ledger.families.check import check_family
from agar.ledger.families.model import ChatModel
from agar.ledger.families.qwen import Qwen25

PROPERTIES = 8


def text_of(name):
    return (HERE / "templates" / f"{name}.jinja").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "thinking"),
    [(name, how) for name in TOKENS for how in (None, True, False) if how is None or "thinking" in text_of(name)],
)
def test_every_family_keeps_every_property_over_its_template(family_of, model_of, reference_of, name, thinking):
    variables = {} if thinking is None else {"enable_thinking": thinking, "thinking": thinking}
    report = check_family(family_of(name, thinking=thinking), reference_of(model_of(name), **variables))
    assert report.ok, str(report)
    assert len(report.checks) == PROPERTIES
    assert all(check.held for check in report.checks if "as sampled" not in check.name), str(report)


def faults(family, reference):
    return {check.name: check.fault for check in check_family(family, reference).checks if check.fault}


def test_a_reference_that_differs_in_one_token_is_found(family_of, model_of, reference_of):
    reference = reference_of(model_of("qwen3"))

    def late(rows, tools, generation):
        ids = list(reference(rows, tools, generation))
        return [*ids[:-1], ids[-1] + 1]

    found = faults(family_of("qwen3"), late)
    assert "expected" in found["a first prompt is apply_chat_template's"]
    assert "a bridge is what the template writes after the reply" in found


def test_a_lost_separator_is_found(model_of, reference_of, monkeypatch):
    family = Qwen25(ChatModel.load(model_of("qwen2.5")))
    bridge = family.bridge
    monkeypatch.setattr(family, "bridge", lambda *a: bridge(*a)[1:])
    found = faults(family, reference_of(model_of("qwen2.5")))
    assert set(found) == {
        "prompt, reply and bridge are the whole prompt, where the template keeps a turn as sampled",
        "a reply that was cut gets its closer",
    }


def test_a_family_that_reads_calls_wrongly_is_found(model_of, reference_of):
    class Forgetful(Qwen25):
        calls = None

    found = faults(Forgetful(ChatModel.load(model_of("qwen2.5"))), reference_of(model_of("qwen2.5")))
    assert set(found) == {"parse reads what the model writes"}


def test_a_family_without_its_stop_token_is_found(model_of, reference_of):
    class Endless(Qwen25):
        stops = ("<|endoftext|>",)

    found = faults(Endless(ChatModel.load(model_of("qwen2.5"))), reference_of(model_of("qwen2.5")))
    assert set(found) == {"a reply that was cut gets its closer"}


def test_text_that_becomes_a_control_token_is_found(model_of, reference_of, monkeypatch):
    family = Qwen25(ChatModel.load(model_of("qwen2.5")))
    monkeypatch.setattr(family.marking, "quote", lambda text: text)
    assert set(faults(family, reference_of(model_of("qwen2.5")))) == {"foreign text never becomes a control token"}


def test_the_report_says_what_was_refused_and_why(family_of, model_of, reference_of):
    report = str(check_family(family_of("llama-layout"), reference_of(model_of("llama-layout"))))
    assert "family llama3" in report
    assert "one call at a time; send what it can write): two calls at once" in report
