"""Records what other programs make of the same conversations; the tests hold the families against it.

    python -m tests.ledger.families.peers.record cases FOLDER          in agar's environment: models and cases
    python record.py renderers FOLDER                                  where `renderers` and transformers are installed
    python record.py miles FOLDER                                      where `miles-tito-tokenizers` is installed
    python record.py sglang FOLDER                                     in the engine's environment

The last three need nothing of agar and write JSON beside this file, or into another folder named last. `renderers`
0.1.12 also needs httpx, which it does not ask for; SGLang on a CPU needs agar's shims (`rollout/engines/shim`) on
PYTHONPATH. Recorded with renderers 0.1.12, miles-tito-tokenizers 0.1.1, SGLang 0.5.23.

Cases are text: the tokenizers of the recording have no merges, so that ids and text say the same.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
RENDERERS = {
    "qwen3": "qwen3",
    "qwen3.5-think": "qwen3.5",
    "qwen3.6": "qwen3.6",
    "glm-4.5": "glm-4.5",
    "glm-4.7": "glm-5",
    "deepseek-r1-0528": "deepseek-r1",
    "deepseek-v3": "deepseek-v3",
}
MILES = {"qwen3": "qwen3", "qwen3.5-think": "qwen35", "glm-4.7": "glm47"}
SGLANG = {  # tool-call parser, reasoning parser, whether the prompt has opened the reasoning
    "qwen2.5": ("qwen25", None, False),
    "qwen3": ("qwen25", "qwen3", False),
    "qwen3.5-think": ("qwen3_coder", "qwen3", True),
    "qwen3.6": ("qwen3_coder", "qwen3", True),
    "glm-4.5": ("glm45", "glm45", False),
    "glm-4.7": ("glm47", "glm45", True),
    "deepseek-v3": ("deepseekv3", None, False),
    "deepseek-r1-0528": ("deepseekv3", "deepseek-r1", True),
    "deepseek-v3.1": ("deepseekv31", None, False),
    "llama-layout": ("llama3", None, False),
}


def tokenizer_of(folder: Path, name: str):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(str(folder / name))


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def renderers(folder: Path) -> dict:
    from renderers import config_from_name, create_renderer

    found: dict = {}
    for name, cases in read(folder).items():
        if name not in RENDERERS:
            continue
        tokenizer = tokenizer_of(folder, name)
        own, keeping = (
            create_renderer(tokenizer, config_from_name(RENDERERS[name]).model_copy(update=changes))
            for changes in ({}, {"thinking_retention": "all"})
        )
        for case in cases:
            try:
                ids = own.render_ids(case["rows"], tools=case["tools"], add_generation_prompt=True)
            except ValueError as error:
                found.setdefault(name, {})[case["name"]] = {"refused": str(error)}
                continue
            prompt, reply = encode(tokenizer, case["prompt"]), encode(tokenizer, case["reply"])
            bridged = keeping.bridge_to_next_turn(prompt, reply, case["new"], tools=case["tools"])
            said = own.parse_response(reply, tools=case["tools"], prompt_ids=prompt)
            found.setdefault(name, {})[case["name"]] = {
                "prompt": tokenizer.decode(ids),
                "bridged": None if bridged is None else tokenizer.decode(bridged.token_ids),
                "text": said.content,
                "reasoning": said.reasoning_content,
                "calls": [[call.name, call.arguments] for call in said.tool_calls],
            }
    return found


def miles(folder: Path) -> dict:
    from miles_tito_tokenizers import get_tito_tokenizer
    from miles_tito_tokenizers.template_resolution import resolve_fixed_chat_template
    from miles_tito_tokenizers.tokenizer_type import TITOTokenizerType

    found: dict = {}
    for name, cases in read(folder).items():
        if name not in MILES:
            continue
        tokenizer = tokenizer_of(folder, name)
        kind = TITOTokenizerType.get_tokenizer_class(TITOTokenizerType(MILES[name]))
        template, _ = resolve_fixed_chat_template(kind, {"tool", "user"})
        if template:
            tokenizer.chat_template = Path(template).read_text("utf-8")
        tito = get_tito_tokenizer(tokenizer, MILES[name], allowed_append_roles=["tool", "user"])
        for case in cases:
            known = encode(tokenizer, case["prompt"] + case["reply"])
            try:
                grown = tito.merge_tokens(case["before"], case["rows"], known, case["tools"])
            except ValueError as error:
                found.setdefault(name, {})[case["name"]] = {"refused": str(error)}
                continue
            found.setdefault(name, {})[case["name"]] = {"bridged": tokenizer.decode(grown)}
    return found


def sglang(folder: Path) -> dict:
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    found: dict = {}
    for name, cases in read(folder).items():
        if name not in SGLANG:
            continue
        calls_parser, reasoning_parser, opened = SGLANG[name]
        for case in cases:
            text, reasoning = case["reply"].removesuffix(case["stop"]), None
            if reasoning_parser:
                reasoning, text = ReasoningParser(
                    model_type=reasoning_parser, stream_reasoning=False, force_reasoning=opened
                ).parse_non_stream(text)
            calls = []
            if case["tools"]:
                parser = FunctionCallParser([Tool(**tool) for tool in case["tools"]], calls_parser)
                if parser.has_tool_call(text):
                    text, calls = parser.parse_non_stream(text)
            found.setdefault(name, {})[case["name"]] = {
                "text": text or "",
                "reasoning": reasoning or None,
                "calls": [[call.name, json.loads(call.parameters)] for call in calls],
            }
    return found


def read(folder: Path) -> dict:
    return json.loads((folder / "cases.json").read_text("utf-8"))


def main(kind: str, folder: Path, to: Path = HERE) -> None:
    if kind == "cases":
        from tests.ledger.families.peers.cases import write

        write(folder)
        return
    found = {"renderers": renderers, "miles": miles, "sglang": sglang}[kind](folder)
    text = json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True)
    (to / f"{kind}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
