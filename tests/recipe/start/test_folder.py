from pathlib import Path

from agar.recipe.start.folder import link


def test_a_name_leads_to_the_policy_made_last(tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
        link(tmp_path / "warm", tmp_path / number)
    assert (tmp_path / "warm").resolve() == (tmp_path / "2").resolve()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "warm"]
