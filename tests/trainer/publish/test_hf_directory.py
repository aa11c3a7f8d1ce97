import json

from agar.trainer.publish.hf_directory import INDEX, copy_companions, shard_name, write_index


def test_config_comes_from_the_model_and_the_rest_from_the_tokenizer(tmp_path):
    model, tokenizer, target = (tmp_path / name for name in ("model", "tokenizer", "target"))
    for directory in (model, tokenizer):
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps({"of": directory.name, "dtype": "float32"}))
        (directory / "chat_template.jinja").write_text(directory.name)
    copy_companions(model, tokenizer, target, dtype="bfloat16")
    assert json.loads((target / "config.json").read_text()) == {"of": "model", "dtype": "bfloat16"}
    assert (target / "chat_template.jinja").read_text() == "tokenizer"


def test_the_index_of_several_shards_finds_every_tensor(tmp_path):
    write_index(tmp_path, [{"a": 4, "b": 8}, {"c": 2}])
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == 14
    assert index["weight_map"] == {"a": shard_name(0, 2), "b": shard_name(0, 2), "c": shard_name(1, 2)}


def test_one_shard_needs_no_index(tmp_path):
    write_index(tmp_path, [{"a": 4}])
    assert shard_name(0, 1) == "model.safetensors"
    assert not (tmp_path / INDEX).exists()
