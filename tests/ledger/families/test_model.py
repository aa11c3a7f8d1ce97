import json

from agar.ledger.families.model import ChatModel
from agar.ledger.toy import write_toy_model


def test_named_tokens_may_be_objects_and_other_settings_are_left_out(tmp_path):
    directory = write_toy_model(tmp_path)
    settings = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "add_bos_token": True, "x": "y"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    model = ChatModel.load(directory)
    assert model.tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert model.end_ids == (model.tokenizer.added["<|im_end|>"],)
    assert model.variables == model.tokens


def test_the_switch_has_every_name_that_templates_know(tmp_path):
    model = ChatModel.load(write_toy_model(tmp_path), thinking=False)
    assert model.variables["enable_thinking"] is model.variables["thinking"] is False


def test_a_single_end_id_is_enough(tmp_path):
    directory = write_toy_model(tmp_path)
    (directory / "tokenizer_config.json").write_text("{}", "utf-8")
    (directory / "generation_config.json").write_text('{"eos_token_id": 3}', "utf-8")
    assert ChatModel.load(directory).end_ids == (3,)
