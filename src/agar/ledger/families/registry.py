"""Which family serves a model: keyed by the hash of its chat template, never guessed from its name."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from agar.errors import ConfigError
from agar.ledger.families.base import Family
from agar.ledger.families.chatml import TEMPLATE, ChatML
from agar.ledger.tokenizer import Tokenizer

FamilyFactory = Callable[[Tokenizer], Family]
"""Builds a family over a model's tokenizer."""


def template_hash(template: str) -> str:
    """SHA-256 of a template's text; line ends and outer white space do not count."""
    return hashlib.sha256(template.replace("\r\n", "\n").strip().encode()).hexdigest()


_BUILT_IN: dict[str, tuple[str, FamilyFactory]] = {template_hash(TEMPLATE): ("chatml", ChatML)}
_REGISTERED: dict[str, tuple[str, FamilyFactory]] = dict(_BUILT_IN)


def register(name: str, template: str, factory: FamilyFactory) -> None:
    """Serve every model whose chat template is `template` with `factory`.

    Raises:
        ConfigError: another family is registered for this template.
    """
    key = template_hash(template)
    known = _REGISTERED.get(key)
    if known is not None and known != (name, factory):
        raise ConfigError(f"template {key[:12]} already belongs to family {known[0]!r}, not {name!r}: use one of them")
    _REGISTERED[key] = (name, factory)


def registered() -> dict[str, str]:
    """Template hash to family name."""
    return {key: name for key, (name, _) in _REGISTERED.items()}


def read_template(directory: str | Path) -> str:
    """The chat template of a model directory (`chat_template.jinja`, else `tokenizer_config.json`).

    Raises:
        ConfigError: the directory has none.
    """
    root = Path(directory)
    plain = root / "chat_template.jinja"
    if plain.is_file():
        return plain.read_text("utf-8")
    settings = root / "tokenizer_config.json"
    template = json.loads(settings.read_text("utf-8")).get("chat_template") if settings.is_file() else None
    if isinstance(template, str):
        return template
    raise ConfigError(
        f"no chat template in {directory}: expected chat_template.jinja, or chat_template in tokenizer_config.json"
    )


def family_for(directory: str | Path) -> Family:
    """The family of a model directory.

    Raises:
        ConfigError: no tokenizer, no template, or a template that no family is registered for.
    """
    key = template_hash(read_template(directory))
    if key not in _REGISTERED:
        known = ", ".join(f"{name} ({hash_[:12]})" for hash_, (name, _) in sorted(_REGISTERED.items()))
        raise ConfigError(
            f"the chat template of {directory} (sha256 {key[:12]}) belongs to no registered family; known: {known}. "
            "Register one with agar.ledger.families.register(name, template, factory)"
        )
    return _REGISTERED[key][1](Tokenizer.load(directory))
