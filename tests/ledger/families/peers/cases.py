"""Conversations for other programs: models whose tokenizers have no merges, prompts, replies and what comes after."""

import json
from functools import cache
from pathlib import Path

import tokenizers
from tests.ledger.families.conftest import HERE, TOKENS, write_model

from agar.errors import LedgerError
from agar.ledger.families.conversations import CONVERSATIONS, Conversation, message_rows, tool_rows
from agar.ledger.families.llama import Llama3
from agar.ledger.families.model import ChatModel
from agar.ledger.families.registry import family_for
from agar.ledger.families.templated import TemplateFamily


@cache
def family_over(folder: Path, name: str) -> TemplateFamily:
    """The family of a template over a tokenizer without merges, written below `folder`."""
    directory = folder / name
    if not directory.exists():
        write_model(directory, (HERE / "templates" / f"{name}.jinja").read_text("utf-8"), TOKENS[name])
        file = directory / "tokenizer.json"
        spec = json.loads(file.read_text("utf-8"))
        letters = {token: id for token, id in spec["model"]["vocab"].items() if len(token) == 1}
        spec["model"] |= {"merges": [], "vocab": dict(zip(sorted(letters), range(len(letters)), strict=True))}
        for position, token in enumerate(spec["added_tokens"]):
            token["id"] = len(letters) + position
        file.write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
        tokenizers.Tokenizer.from_file(str(file))
    family = Llama3(ChatModel.load(directory)) if name == "llama-layout" else family_for(directory)
    assert isinstance(family, TemplateFamily)
    return family


def cases(family: TemplateFamily) -> list[dict]:
    """Every conversation with a reply that the family can write: what came before it, the reply, what came after."""
    found = []
    for conversation in CONVERSATIONS:
        turns = [i for i, message in enumerate(conversation.messages) if message.role == "assistant"]
        if not turns:
            continue
        try:
            found.append(_case(family, conversation, turns[-1]))
        except LedgerError:
            continue
    return found


def _case(family: TemplateFamily, conversation: Conversation, at: int) -> dict:
    messages, text = conversation.messages, family.tokenizer.decode
    tools = conversation.tools if family.template.takes_tools else ()
    prompt = family.render(messages[:at], tools)
    reply = family.reply(messages[at], prompt=prompt)
    return {
        "name": conversation.name,
        "rows": message_rows(messages, family.wire),
        "before": message_rows(messages[: at + 1], family.wire),
        "new": message_rows(messages[at + 1 :], family.wire),
        "tools": tool_rows(conversation.tools),
        "prompt": text(prompt),
        "reply": text(reply),
        "stop": text(reply[-1:]),
    }


def write(folder: Path) -> None:
    """Models and `cases.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: cases(family_over(folder, name)) for name in TOKENS}, ensure_ascii=False, indent=1)
    (folder / "cases.json").write_text(text, "utf-8")
