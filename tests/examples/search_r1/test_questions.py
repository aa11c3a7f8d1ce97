"""Questions are kept only where the index leads to the answer."""

import json
from pathlib import Path

import pytest

from agar.examples.search_r1.library import Definition
from agar.examples.search_r1.questions import Question, passages, questions
from agar.tool_servers.search.config import IndexConfig
from agar.tool_servers.search.index import Index, build

FOUND = [
    Definition(name="dedent", module="textwrap", kind="function", parameter="text", says="Remove margins."),
    Definition(name="fill", module="textwrap", kind="function", parameter="width", says="Fill a paragraph."),
    Definition(name="Calendar", module="calendar", kind="class", base="object", says="Days."),
]


def index_of(folder: Path, found: list[Definition]) -> Index:
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": p.id, "text": p.text}) + "\n" for p in passages(found)))
    return Index(build(IndexConfig(corpus=corpus), folder / "index"))


def test_passages_say_what_is_asked() -> None:
    texts = {passage.id: passage.text for passage in passages(FOUND)}
    assert texts["textwrap.dedent"] == (
        "`dedent` is a function. Its first parameter is `text`. It is in `textwrap`. Remove margins."
    )
    assert texts["textwrap"] == "`textwrap` is a module. Listed first in it is `dedent`."
    assert len(texts) == 5


def test_an_answer_comes_with_the_searches_that_lead_to_it(tmp_path: Path) -> None:
    asked = {question.text: question for question in questions(FOUND, index_of(tmp_path, FOUND), seed=1)}
    two = asked["What is listed first in the module of `fill`?"]
    assert (two.answer, two.hops) == ("dedent", ("`fill`", "module `textwrap`"))
    assert asked["Which module has `fill`?"].answer == "textwrap"
    assert asked["What is the first parameter of `fill`?"].answer == "width"


def test_a_question_that_holds_its_answer_is_not_asked(tmp_path: Path) -> None:
    asked = [question.text for question in questions(FOUND, index_of(tmp_path, FOUND), seed=1)]
    assert "Which module has `Calendar`?" not in asked
    assert "What is listed first in the module of `dedent`?" not in asked  # it is itself


def test_a_question_whose_passage_is_not_found_is_not_asked(tmp_path: Path) -> None:
    asked = questions(FOUND, index_of(tmp_path, FOUND[1:]), seed=1)
    assert all(question.about != "dedent" for question in asked)


def test_all_questions_about_a_name_are_in_one_split() -> None:
    def question(text: str) -> Question:
        return Question(text=text, kind="module", about="dedent", hops=(), found=(), answer="")

    assert question("one").split == question("other").split


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_fixes_the_order(tmp_path: Path, seed: int) -> None:
    index = index_of(tmp_path, FOUND)
    assert questions(FOUND, index, seed=seed) == questions(FOUND, index, seed=seed)
    assert sorted(q.text for q in questions(FOUND, index, seed=1)) == sorted(
        q.text for q in questions(FOUND, index, seed=2)
    )
