"""The page is one inert file: nothing is loaded, and no text of a model, a tool or a task becomes markup."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from agar.errors import ConfigError
from agar.ledger.trace import dump_traces
from agar.recipe.page import write
from agar.recipe.page.write import write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Outline(HTMLParser):
    """The elements of a page, and the text of its scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self._open = [], {}, None
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id", "program") if tag == "script" else None

    def handle_data(self, data):
        if not self._open:
            self.shown += data
        else:
            self.scripts[self._open] = self.scripts.get(self._open, "") + data


@pytest.fixture
def page(folder, tmp_path):
    return write_page(folder, tmp_path / "view.html", episodes=5)


@pytest.fixture
def outline(page):
    return Outline(page.path.read_text("utf-8"))


def test_it_counts_what_it_shows_and_what_it_leaves_out(page, outline):
    assert (page.shown, page.total, page.unreadable, page.without_text) == (5, 7, 0, ())
    run = json.loads(outline.scripts["run"])
    assert [(f["name"], f["total"], f["shown"]) for f in run["files"]] == [
        ("eval-000002-Guess-v0", 1, 1), ("step-000001", 3, 2), ("step-000002", 3, 2),
    ]  # fmt: skip
    assert [episode["step"] for episode in run["episodes"]] == [2, 1, 1, 2, 2]
    assert {f"e{n}" for n in range(5)} | {"run", "program"} == set(outline.scripts)


def test_hostile_text_stays_data(page, outline):
    """Seven elements of data and program, and none of those that the texts would like to add."""
    tags = [tag for tag, _ in outline.elements]
    assert tags.count("script") == 7
    assert "img" not in tags
    assert "b" not in tags  # the folder is called run<b>
    text = page.path.read_text("utf-8")
    assert text.count("</script") == 7
    assert "owned'" in json.loads(outline.scripts["e0"])["nodes"][0]["messages"][0]["text"]  # it is there, spelt out


def test_nothing_is_loaded_and_only_our_script_may_run(outline):
    for tag, attributes in outline.elements:
        assert not {"src", "href", "action", "srcset", "data"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    (policy,) = [a["content"] for _, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
        assert forbidden not in outline.scripts["program"]
    assert re.findall(r"https?://[^\"]*", outline.scripts["program"]) == ["http://www.w3.org/2000/svg"]


def test_the_metrics_leave_out_a_row_that_is_being_written(outline):
    metrics = json.loads(outline.scripts["run"])["metrics"]
    assert [row["step"] for row in metrics] == [0, 1, 2, 3]
    assert metrics[0]["odd"] == "nan"


def test_many_metrics_are_thinned_to_the_last_of_each_stride(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MAX_METRIC_ROWS", 2)
    page = write_page(folder, tmp_path / "view.html", episodes=1)
    run = json.loads(Outline(page.path.read_text("utf-8")).scripts["run"])
    assert (run["stride"], [row["step"] for row in run["metrics"]]) == (2, [1, 3])


def test_lines_that_are_no_traces_are_counted(folder, tmp_path):
    (folder.path / "traces" / "step-000003.jsonl").write_bytes(b"{}\n")
    page = write_page(folder, tmp_path / "view.html", episodes=100)
    assert (page.shown, page.total, page.unreadable) == (7, 8, 1)


def test_a_run_without_traces_still_has_its_curve(folder, tmp_path):
    shutil.rmtree(folder.path / "traces")
    page = write_page(folder, tmp_path / "view.html", episodes=100)
    assert (page.shown, page.total) == (0, 0)


def test_without_a_tokenizer_it_says_so(folder, tmp_path):
    (tmp_path / "model" / "tokenizer.json").unlink()
    assert write_page(folder, tmp_path / "view.html", episodes=1).without_text == ("main",)


def test_a_place_that_cannot_be_written_is_an_error_with_a_fix(folder, tmp_path):
    with pytest.raises(ConfigError, match="--out"):
        write_page(folder, tmp_path / "nowhere" / "view.html", episodes=1)
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="--out"):
        write_page(folder, tmp_path / "taken", episodes=1)
    assert not (tmp_path / "taken.partial").exists()


def drawn_by_a_browser(page, place, tmp_path):
    """What the page's elements are once its script has run."""
    return subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000", "--dump-dom",
            f"{page.as_uri()}#{place}",
        ],
        capture_output=True, text=True, timeout=100, check=True,
    ).stdout  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("mode", ["with", "without"])
def test_a_browser_draws_it_and_runs_nothing_of_the_texts(folder, tmp_path, mode):
    if mode == "without":
        (tmp_path / "model" / "tokenizer.json").unlink()
    page = write_page(folder, tmp_path / "view.html", episodes=5)
    dom = drawn_by_a_browser(page.path, "e1n3", tmp_path)
    drawn = Outline(dom)
    assert "<title>run&lt;b&gt;</title>" in dom
    assert not [tag for tag, _ in drawn.elements if tag == "img"]
    classes = [attributes.get("class") or "" for _, attributes in drawn.elements]
    assert len([c for c in classes if c.startswith("node ")]) == 4
    assert "node excluded" in classes
    assert [c for c in classes if c.startswith("token trained")]
    assert ("token context plain" in classes) == (mode == "without")
    assert "5 of 7 episodes are on this page" in dom
    assert "turn reward 1" in dom
    assert "\u202e" not in drawn.shown  # it would turn the text after it around
    assert "\u27e8U+202E\u27e9" in drawn.shown
    assert ">\u21b5\n<" in dom or mode == "without"  # a token that is a line end can be seen


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_a_browser_draws_a_page_of_hundreds_of_episodes(folder, trace, tmp_path):
    long = replace(trace, nodes=trace.nodes[:1], divergences=(), turn_rewards={})
    dump_traces(folder.path / "traces" / "step-000004.jsonl", [replace(long, trajectory=f"t/{n}") for n in range(500)])
    page = write_page(folder, tmp_path / "view.html", episodes=600)
    assert page.shown == 507
    dom = drawn_by_a_browser(page.path, "e506", tmp_path)
    assert ">507 episodes<" in dom
    assert ">107 more<" in dom
    assert ">t/499<" in dom  # the last one is open
    assert len(re.findall(r'id="row\d', dom)) == 400
