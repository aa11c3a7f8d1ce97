"""The seeded faults can still be put in, their tests are there, and the runner can tell a dead fault from a living one.

That each of them is killed is what `tests/mutations/run.py` finds, a job of `make verify`.
"""

import ast
from pathlib import Path

import pytest
from tests.scripts import script

RUN = Path(__file__).with_name("run.py")


@pytest.fixture(scope="module")
def mutations():
    with script(RUN) as module:
        yield module


def test_every_fault_can_be_put_in_and_names_a_test_that_is_there(mutations):
    faults = mutations.read_faults()
    assert len(faults) >= 12
    assert len({fault.name for fault in faults}) == len(faults)
    for fault in faults:
        changed = mutations.faulty(fault, mutations.CHECKOUT)
        assert all(text != path.read_text("utf-8") for path, text in changed.items())
        file, _, name = fault.test.partition("::")
        tree = ast.parse((mutations.CHECKOUT / file).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_page_lists_every_fault_as_killed(mutations):
    faults = mutations.read_faults()
    wanted = mutations.page(faults, {fault.name: True for fault in faults})
    assert mutations.PAGE.read_text("utf-8") == wanted, "run python tests/mutations/run.py --write"


@pytest.fixture
def tree(tmp_path):
    package = tmp_path / "src" / "agar"
    package.mkdir(parents=True)
    (package / "one.py").write_text("def one():\n    return 1\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        "import sys\nsys.path.insert(0, 'src/agar')\nimport one\n\ndef test_one():\n    assert one.one() == 1\n"
    )
    return tmp_path


def fault_of(mutations, before, after):
    edit = mutations.Edit(file="src/agar/one.py", before=before, after=after)
    return mutations.Fault(name="one", fault="", test="tests/test_one.py::test_one", edits=(edit,))


def test_a_fault_is_killed_by_a_failing_test_only_and_is_taken_out_again(mutations, tree):
    sound = (tree / "src" / "agar" / "one.py").read_text()
    assert mutations.killed(fault_of(mutations, "return 1", "return 2"), tree)
    assert not mutations.killed(fault_of(mutations, "return 1", "return 1.0"), tree)
    assert not mutations.killed(fault_of(mutations, "def one()", "raise OSError\ndef one()"), tree)
    assert (tree / "src" / "agar" / "one.py").read_text() == sound


@pytest.mark.parametrize(("before", "after", "why"), [("two", "", "occurs 0 times"), ("one", "", "occurs 1|syntax")])
def test_a_fault_that_cannot_be_put_in_is_named(mutations, tree, before, after, why):
    with pytest.raises((ValueError, SyntaxError), match=f"(?i){why}|invalid"):
        mutations.faulty(fault_of(mutations, before, after), tree)
