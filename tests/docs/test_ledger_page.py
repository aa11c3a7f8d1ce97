"""`docs/ledger.md` names every kind of difference, edge, exclusion, side array and invariant, and none that is gone."""

import re
from pathlib import Path

from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Exclusion
from agar.ledger.layouts import LAYOUTS
from agar.ledger.node import Divergence, Edge

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "ledger.md").read_text("utf-8")


def named_in_rows(heading: str) -> set[str]:
    """What stands in the first column of the table under a heading, without its marks."""
    table = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_tables_list_exactly_what_there_is():
    assert named_in_rows("Difference") == {kind.value for kind in Divergence}
    assert named_in_rows("Reason") == {reason.value for reason in Exclusion}
    assert named_in_rows("Side array") == set(LAYOUTS)


def test_every_edge_and_every_setting_of_the_record_is_named():
    assert [edge.value for edge in Edge if f"`{edge.value}`" not in PAGE] == []
    settings = [name for name in RecordPolicy.model_fields if f"`{name}`" not in PAGE and f"\n{name} = " not in PAGE]
    assert settings == []


def test_every_invariant_of_a_batch_has_a_row():
    assert re.findall(r"^\| (I\d+) \|", PAGE, re.MULTILINE) == [f"I{number}" for number in range(1, 15)]
