# ruff: noqa: RUF001 (DeepSeek's own tokens)
import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from agar.ledger.families import family_for
from agar.ledger.families.llama import Llama3
from agar.ledger.families.model import ChatModel

HERE = Path(__file__).parent
QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
GLM = (
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "/nothink",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    *QWEN_MARKS,
)
DEEPSEEK = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
    "<think>",
    "</think>",
)
LLAMA = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
)
TOKENS = {
    "chatml-plain": QWEN,
    "smollm2": QWEN,
    "qwen2.5": (*QWEN, "<tool_call>", "</tool_call>"),
    "qwen3": (*QWEN, *QWEN_MARKS),
    "qwen3-instruct-2507": (*QWEN, *QWEN_MARKS),
    "qwen3.5-think": (*QWEN, *QWEN_MARKS, *VISION),
    "qwen3.5-nothink": (*QWEN, *QWEN_MARKS, *VISION),
    "qwen3.6": (*QWEN, *QWEN_MARKS, *VISION),
    "qwen2.5-vl": (*QWEN, *VISION),
    "qwen3-vl": (*QWEN, *QWEN_MARKS, *VISION),
    "glm-4.5": GLM,
    "glm-4.6": GLM,
    "glm-4.7": GLM,
    "deepseek-v3": DEEPSEEK,
    "deepseek-r1": DEEPSEEK,
    "deepseek-r1-0528": DEEPSEEK,
    "deepseek-v3.1": DEEPSEEK,
    "llama-layout": LLAMA,
}
"""Template to the added tokens of its models' tokenizers, as far as conversations have them."""

CORPUS = (
    "system user assistant tool function name description parameters type object properties string integer",
    '{"name": "look", "arguments": {"at": "the old box below", "times": 2}} gold silver What is in the box? Be brief.',
    "You may call one or more functions to assist with the user query. Start at 47. And below? Sure? I look first.",
)


def write_model(directory: Path, template: str, tokens: tuple[str, ...]) -> Path:
    """A model directory without weights: a byte-level BPE trained on a few lines, with a family's added tokens."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in tokens])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(template, "utf-8")
    ends = next(
        token for token in ("<|im_end|>", "<|eot_id|>", "<｜end▁of▁sentence｜>", "<|endoftext|>") if token in tokens
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": tokens[0], "eos_token": ends}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return directory


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory):
    """The model directory of a template by its name."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            template = (HERE / "templates" / f"{name}.jinja").read_text("utf-8")
            made[name] = write_model(tmp_path_factory.mktemp("model"), template, TOKENS[name])
        return made[name]

    return make


@pytest.fixture(scope="session")
def family_of(model_of):
    """The family of a template by its name."""
    made = {}

    def make(name: str, *, thinking: bool | None = None):
        if (name, thinking) not in made:
            if name == "llama-layout":
                made[name, thinking] = Llama3(ChatModel.load(model_of(name)))
            else:
                made[name, thinking] = family_for(model_of(name), thinking=thinking)
        return made[name, thinking]

    return make


@pytest.fixture(scope="session")
def reference_of():
    """transformers' own rendering over a model directory."""
    from transformers import PreTrainedTokenizerFast

    made = {}

    def make(directory: Path, **variables):
        if directory not in made:
            made[directory] = PreTrainedTokenizerFast.from_pretrained(str(directory))

        def render(rows, tools, generation):
            return made[directory].apply_chat_template(
                rows, tools=tools, add_generation_prompt=generation, tokenize=True, return_dict=False, **variables
            )

        return render

    return make


@pytest.fixture(scope="session")
def engine_python():
    """Interpreter with SGLang."""
    from agar.rollout.engines.installation import engine_python as find

    found = find()
    assert found is not None, "no environment with SGLang: run `make env`, or set AGAR_ENGINE_PYTHON"
    return found
