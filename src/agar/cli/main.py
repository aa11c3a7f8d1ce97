"""The entry point of `agar`: finds the command, runs it, turns errors into a line and an exit code.

Exit codes: 0 done; 1 something failed; 2 the recipe or the command line is wrong; 130 interrupted.
"""

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

from agar import __version__
from agar.cli.commands import COMMANDS
from agar.errors import AgarError, ConfigError

FAILED, WRONG, INTERRUPTED = 1, 2, 130


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command line; only the command that it names is imported.

    Args:
        words: the command line without the program's name.
    """
    shared = argparse.ArgumentParser(add_help=False)
    for flags, text in [(("-v", "--verbose"), "log what is going on"), (("--debug",), "log all, and show tracebacks")]:
        shared.add_argument(*flags, action="store_true", default=argparse.SUPPRESS, help=text)
    parser = argparse.ArgumentParser(
        prog="agar", description="The agent gym with an RL training backend.", parents=[shared], allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"agar {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        own = parsers.add_parser(
            name, help=command.help, description=_sentence(command.help), parents=[shared], allow_abbrev=False
        )
        if name == named:
            command.load().add_parser(own)
            if command.overrides:
                own.epilog = "Any setting of the recipe may follow: --dotted.key VALUE, or dotted.key=VALUE."
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line.

    Args:
        words: the command line without the program's name.

    Returns:
        The options; `overrides` holds the dotted settings of a command that takes them.

    Raises:
        SystemExit: the command line is wrong (2), or asked for help (0).
    """
    parser = parser_for(words)
    options, rest = parser.parse_known_args(words)
    if rest and not COMMANDS[options.command].overrides:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.overrides = rest
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        words: the command line without the program's name; `sys.argv` by default.

    Returns:
        The exit code.
    """
    if words is None:
        words = sys.argv[1:]
        _find_modules_here()
    options = parse(words)
    debug = getattr(options, "debug", False)
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Of what goes on here; libraries log every request, and are for --debug.
    logging.getLogger("agar").setLevel(logging.INFO if getattr(options, "verbose", False) else logging.NOTSET)
    try:
        return COMMANDS[options.command].load().run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return FAILED
    except Exception as error:
        found = list(_ours(error))
        if debug or not found:
            raise
        for one in found:
            print(f"error: {one}", file=sys.stderr)
            for note in getattr(one, "__notes__", []):
                print(note, file=sys.stderr)
        logging.getLogger(__name__).info("%s", "".join(traceback.format_exception(error)))
        return WRONG if all(isinstance(one, ConfigError) for one in found) else FAILED


def _find_modules_here() -> None:
    """Let `my_module:Mine-v0` name a module of the folder that `agar` runs in; what is installed comes first."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _ours(error: BaseException) -> Iterator[AgarError]:
    """The errors that agar raised on purpose; none where any part of a group is something else."""
    if isinstance(error, AgarError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        parts = [list(_ours(part)) for part in error.exceptions]
        if all(parts):
            yield from {str(one): one for part in parts for one in part}.values()


if __name__ == "__main__":
    sys.exit(main())
