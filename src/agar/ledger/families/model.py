"""What of a model directory a family is built from: its tokenizer, its chat template, its named tokens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from agar.errors import ConfigError
from agar.ledger.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    """The text side of a model directory.

    Attributes:
        tokenizer: its tokenizer.
        template: its chat template.
        tokens: named tokens that the template may read (`bos_token` and the like).
        thinking: the template's own switch for reasoning (`enable_thinking`, `thinking`); None leaves it to the
            template.
        today: the date that the template may write; that of its reading where nothing else is said.
        end_ids: ids that end a reply, as the directory says (`eos_token`, `eos_token_id` of generation_config.json).
    """

    tokenizer: Tokenizer
    template: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    thinking: bool | None = None
    today: date = field(default_factory=lambda: date.today())
    end_ids: tuple[int, ...] = ()

    @classmethod
    def load(cls, directory: str | Path, *, thinking: bool | None = None, today: date | None = None) -> "ChatModel":
        """Read a model directory.

        Raises:
            ConfigError: it has no tokenizer or no chat template.
        """
        settings = _json(Path(directory) / "tokenizer_config.json")
        tokens = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in settings.items()
            if name.endswith("_token") and isinstance(value, (str, dict))
        }
        template, tokenizer = read_template(directory), Tokenizer.load(directory)
        named = _json(Path(directory) / "generation_config.json").get("eos_token_id", ())
        ends = [tokenizer.added.get(tokens.get("eos_token", "")), *([named] if isinstance(named, int) else named)]
        return cls(
            tokenizer=tokenizer,
            template=template,
            tokens=tokens,
            thinking=thinking,
            today=today or date.today(),
            end_ids=tuple(dict.fromkeys(id for id in ends if isinstance(id, int))),
        )

    @property
    def variables(self) -> dict[str, Any]:
        """What the template may read besides the conversation."""
        switches = {} if self.thinking is None else {"enable_thinking": self.thinking, "thinking": self.thinking}
        return {**self.tokens, **switches}


def read_template(directory: str | Path) -> str:
    """The chat template of a model directory (`chat_template.jinja`, else `tokenizer_config.json`).

    Raises:
        ConfigError: the directory has none.
    """
    plain = Path(directory) / "chat_template.jinja"
    if plain.is_file():
        return plain.read_text("utf-8")
    template = _json(Path(directory) / "tokenizer_config.json").get("chat_template")
    if isinstance(template, str):
        return template
    raise ConfigError(
        f"no chat template in {directory}: expected chat_template.jinja, or chat_template in tokenizer_config.json"
    )


def _json(file: Path) -> dict[str, Any]:
    value = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return value if isinstance(value, dict) else {}
