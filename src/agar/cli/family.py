"""`agar family list` and `agar family check TOKENIZER_DIR`."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.errors import ConfigError, to_install

if TYPE_CHECKING:
    from agar.ledger.families.check import Reference
    from agar.ledger.families.model import ChatModel


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add `list` and `check`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every chat template that a family is registered for")
    listing.add_argument("--json", action="store_true", help="print a JSON object")
    check = actions.add_parser("check", help="does a family fit a model's tokenizer and chat template?")
    check.add_argument("directory", metavar="TOKENIZER_DIR", type=Path, help="tokenizer.json and a chat template")
    check.add_argument("--family", metavar="NAME", help="try this family; by default the registered one")
    check.add_argument("--thinking", choices=("on", "off"), help="the template's switch; by default its own choice")


def run(options: argparse.Namespace) -> int:
    """List, or check; 1 where a property fails or the template belongs to no family.

    Raises:
        ConfigError: the directory cannot be read, or there is no such family.
    """
    if options.action == "list":
        return show_list(as_json=options.json)
    return check(options.directory, options.family, {"on": True, "off": False, None: None}[options.thinking])


def show_list(*, as_json: bool) -> int:
    """Print the registered templates."""
    from agar.ledger.families.known import KNOWN
    from agar.ledger.families.registry import registered

    found = registered()
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    models = {key: model for templates in KNOWN.values() for model, key in templates.items()}
    width, model_width = (max(map(len, words)) for words in (found.values(), models.values()))
    for key, name in sorted(found.items(), key=lambda pair: (pair[1], models.get(pair[0], ""))):
        print(f"{name:<{width}}  {models.get(key, '-'):<{model_width}}  sha256 {key}")
    return 0


def check(directory: Path, name: str | None, thinking: bool | None) -> int:
    """Prove a family over a model and print what held."""
    from agar.ledger.families.check import check_family
    from agar.ledger.families.model import ChatModel
    from agar.ledger.families.registry import family_named, registered, template_hash
    from agar.ledger.families.templated import TemplateFamily

    model = ChatModel.load(directory, thinking=thinking)
    key = template_hash(model.template)
    known = registered().get(key)
    print(f"template  sha256 {key}, {f'registered for {known}' if known else 'registered for no family'}")
    if name is None and known is None:
        print("every call would get its own full prompt by the capture path; --family NAME tries a family:")
        print("  " + ", ".join(sorted(set(registered().values()))))
        return 1
    family = family_named(name or known or "")(model)
    if not isinstance(family, TemplateFamily):
        raise ConfigError(f"family {family.name!r} is no TemplateFamily: check it in a test of its own")
    report = check_family(family, reference(directory, model), ends=model.end_ids)
    print(report)
    return 0 if report.ok else 1


def reference(directory: Path, model: "ChatModel") -> "Reference":
    """The rendering by transformers.

    Raises:
        ConfigError: transformers is not installed, or cannot read the directory.
    """
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise ConfigError(f"agar family check compares with transformers: {to_install('trainer')}") from error
    try:
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(str(directory))
    except (OSError, ValueError) as error:
        raise ConfigError(f"transformers cannot read {directory}: {error}") from error
    switches = {name: value for name, value in model.variables.items() if name not in model.tokens}

    def render(rows: list[dict[str, Any]], tools: list[dict[str, Any]] | None, generation: bool) -> list[int]:
        ids = tokenizer.apply_chat_template(
            rows,
            tools=tools,
            chat_template=model.template,
            add_generation_prompt=generation,
            tokenize=True,
            return_dict=False,
            **switches,
        )
        return list(ids)

    return render
