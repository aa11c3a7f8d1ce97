"""The page itself: one file, no network, and no way for a model's text to become markup or script."""

import base64
import hashlib
import html
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from agar.errors import ConfigError, LedgerError
from agar.ledger.config import RecordPolicy
from agar.ledger.saved import SavedTraces
from agar.ledger.trace import Trace
from agar.recipe.folder import RunFolder
from agar.recipe.page.choice import Share, choose
from agar.recipe.page.episode import episode_of, plain
from agar.recipe.page.words import Words, tokenizer_of

MAX_METRIC_ROWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page that was written.

    Attributes:
        path: the file.
        shown: episodes on it.
        total: episodes of the run.
        unreadable: lines of the shown part that are no traces.
        without_text: policies whose tokenizer is gone; their tokens are shown as ids.
    """

    path: Path
    shown: int
    total: int
    unreadable: int
    without_text: tuple[str, ...]


def write_page(folder: RunFolder, out: Path, *, episodes: int) -> Page:
    """Write the page of a run.

    Args:
        folder: the run.
        out: the file to write; it is replaced when the page is complete.
        episodes: how many episodes to show at most.

    Raises:
        ConfigError: the recipe of the run cannot be read, or the file cannot be written.
    """
    writer = _Writer(folder, episodes)
    partial = out.with_name(f"{out.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(writer.pieces())
        os.replace(partial, out)
    except OSError as error:
        raise ConfigError(f"cannot write {out} ({error.strerror}): give another place with --out") from error
    finally:
        partial.unlink(missing_ok=True)
    return Page(
        path=out,
        shown=len(writer.summaries),
        total=sum(share.total for share in writer.shares),
        unreadable=writer.unreadable,
        without_text=tuple(sorted(name for name, words in writer.words.items() if not words.texts)),
    )


class _Writer:
    """Writes the page piece by piece, so that a run's traces need not fit in memory."""

    def __init__(self, folder: RunFolder, episodes: int) -> None:
        self._folder = folder
        self._recipe = _recipe(folder)
        files: tuple[Path, ...] = ()
        self._record = RecordPolicy()
        if any((folder.path / "traces").glob("*.jsonl")):
            saved = SavedTraces.find(folder.path)
            files, self._record = saved.files, saved.policy
        self.shares: list[Share] = choose(files, episodes)
        self.words: dict[str, Words] = {}
        self.summaries: list[Mapping[str, Any]] = []
        self.unreadable = 0

    def pieces(self) -> Iterator[str]:
        style, script = _asset("page.css"), _asset("page.js")
        title = html.escape(self._folder.path.name)
        yield (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f"script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'\">\n"
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{_asset('page.html')}\n"
        )
        for share in self.shares:
            yield from self._episodes(share)
        yield _data("run", self._run())
        yield f"<script>{script}</script>\n</body>\n</html>\n"

    def _episodes(self, share: Share) -> Iterator[str]:
        for line in share.lines():
            try:
                trace = Trace.load(line)
            except LedgerError:
                self.unreadable += 1
                continue
            if trace.policy not in self.words:
                self.words[trace.policy] = Words(tokenizer_of(self._folder, trace.policy, self._recipe))
            episode = episode_of(trace, self._record, self.words[trace.policy], file=share.file.stem)
            yield _data(f"e{len(self.summaries)}", episode.detail)
            self.summaries.append(episode.summary)

    def _run(self) -> dict[str, Any]:
        rows = list(_rows(self._folder.metrics))
        stride = -(-len(rows) // MAX_METRIC_ROWS) or 1
        # The last row of each stride: the end of a run is what one looks for.
        return {
            "name": self._folder.path.name,
            "episodes": self.summaries,
            "files": [{"name": s.file.stem, "total": s.total, "shown": s.shown} for s in self.shares],
            "unreadable": self.unreadable,
            "texts": {name: words.texts for name, words in self.words.items()},
            "metrics": plain(rows[::-1][::stride][::-1]),
            "stride": stride,
            "recipe": plain(self._recipe),
        }


def _recipe(folder: RunFolder) -> Mapping[str, Any]:
    try:
        recipe = json.loads(folder.recipe.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the settings of the run, {folder.recipe}, cannot be read ({error}): mend them") from error
    return recipe if isinstance(recipe, dict) else {}


def _rows(metrics: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a `metrics.jsonl`; a last one that is still being written is left out."""
    if not metrics.is_file():
        return
    for line in metrics.read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _data(name: str, value: Any) -> str:
    """A block of data that no browser runs or reads as markup: `<`, `>` and `&` are spelt as escapes of JSON."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
