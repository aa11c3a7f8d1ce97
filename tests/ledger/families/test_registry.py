import logging
import shutil

import pytest
from tests.ledger.families.conftest import HERE, TOKENS

from agar.errors import ConfigError
from agar.ledger.families import family_for, register, registered, template_hash
from agar.ledger.families.chatml import ChatML
from agar.ledger.families.registry import family_named

NAMES = {
    "chatml-plain": "chatml-plain",
    "smollm2": "chatml-plain",
    "qwen2.5": "qwen2.5",
    "qwen3-instruct-2507": "qwen2.5",
    "qwen3": "qwen3",
    "qwen3.5-think": "qwen3.5",
    "qwen3.5-nothink": "qwen3.5",
    "qwen3.6": "qwen3.5",
    "qwen2.5-vl": "qwen2.5-vl",
    "qwen3-vl": "qwen3-vl",
    "glm-4.5": "glm4.5",
    "glm-4.6": "glm4.5",
    "glm-4.7": "glm4.7",
    "deepseek-v3": "deepseek-v3",
    "deepseek-r1": "deepseek-r1",
    "deepseek-r1-0528": "deepseek-r1",
    "deepseek-v3.1": "deepseek-v3.1",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_published_template_has_its_family(family_of, name):
    assert family_of(name).name == NAMES[name]


def test_every_kept_template_is_tried():
    assert {file.stem for file in (HERE / "templates").glob("*.jinja")} == set(TOKENS)


def changed(model_of, tmp_path, name, text):
    directory = shutil.copytree(model_of(name), tmp_path / "model")
    (directory / "chat_template.jinja").write_text(text, "utf-8")
    return directory


def test_one_changed_character_is_another_template(model_of, tmp_path, caplog):
    text = (model_of("qwen3") / "chat_template.jinja").read_text("utf-8")
    with caplog.at_level(logging.WARNING):
        family = family_for(changed(model_of, tmp_path, "qwen3", text.replace("# Tools", "# Tool")))
    assert family.name == "capture"
    (record,) = caplog.records
    assert "belongs to no registered family" in record.getMessage()
    assert "agar family check --family NAME" in record.getMessage()


def test_a_known_template_says_nothing(model_of, caplog):
    with caplog.at_level(logging.WARNING):
        family_for(model_of("qwen3"))
    assert not caplog.records


def test_line_ends_and_outer_white_space_do_not_count():
    assert template_hash(" a\r\nb\n") == template_hash("a\nb")


def test_a_template_belongs_to_one_family(model_of):
    text = (model_of("glm-4.5") / "chat_template.jinja").read_text("utf-8")
    with pytest.raises(ConfigError, match=r"already belongs to family 'glm4\.5', not 'mine'"):
        register("mine", text, ChatML)
    register("glm4.5", text, family_named("glm4.5"))
    assert registered()[template_hash(text)] == "glm4.5"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"no family 'qwen9': registered are chatml, .*qwen3\.5"):
        family_named("qwen9")


def test_a_model_without_a_template_is_refused(model_of, tmp_path):
    directory = shutil.copytree(model_of("qwen3"), tmp_path / "model")
    (directory / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template in"):
        family_for(directory)


def test_a_template_that_is_not_jinja_is_refused(model_of, tmp_path):
    with pytest.raises(ConfigError, match="not jinja"):
        family_for(changed(model_of, tmp_path, "qwen3", "{% if %}"))
