"""Which family serves a model: keyed by the hash of its chat template, never guessed from its name."""

import hashlib
import logging
from collections.abc import Callable
from datetime import date
from pathlib import Path

from agar.errors import ConfigError
from agar.ledger.families.base import Family
from agar.ledger.families.capture import Capture
from agar.ledger.families.chatml import TEMPLATE, ChatML
from agar.ledger.families.known import KNOWN
from agar.ledger.families.model import ChatModel

logger = logging.getLogger(__name__)

FamilyFactory = Callable[[ChatModel], Family]
"""Builds a family over the text side of a model."""


def template_hash(template: str) -> str:
    """SHA-256 of a template's text; line ends and outer white space do not count."""
    return hashlib.sha256(template.replace("\r\n", "\n").strip().encode()).hexdigest()


def _own(model: ChatModel) -> Family:
    return ChatML(model.tokenizer)


_REGISTERED: dict[str, tuple[str, FamilyFactory]] = {
    template_hash(TEMPLATE): ("chatml", _own),
    **{key: (family.name, family) for family, templates in KNOWN.items() for key in templates.values()},
}


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


def family_named(name: str) -> FamilyFactory:
    """The factory of a registered family.

    Raises:
        ConfigError: there is none of that name.
    """
    for known, factory in _REGISTERED.values():
        if known == name:
            return factory
    raise ConfigError(f"no family {name!r}: registered are {', '.join(sorted(set(registered().values())))}")


def family_for(directory: str | Path, *, thinking: bool | None = None, today: date | None = None) -> Family:
    """The family of a model directory; the capture path where its template belongs to none, with a warning.

    Args:
        directory: a Hugging Face directory with a tokenizer and a chat template.
        thinking: the template's own switch for reasoning; None leaves it to the template.
        today: the date that the template may write; None takes the day's.

    Raises:
        ConfigError: no tokenizer, no template, or neither fits the family.
    """
    model = ChatModel.load(directory, thinking=thinking, today=today)
    key = template_hash(model.template)
    if key in _REGISTERED:
        return _REGISTERED[key][1](model)
    logger.warning(
        "the chat template of %s (sha256 %s) belongs to no registered family (%s): every call gets its own full prompt "
        "by the capture path, which is exact but re-renders the history; `agar family check --family NAME %s` says "
        "whether a registered one fits",
        directory,
        key[:12],
        ", ".join(sorted(set(registered().values()))),
        directory,
    )
    return Capture(model)
