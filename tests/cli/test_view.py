"""`agar view` over a run that a real rollout wrote: where the page goes, and what is said of what is not on it."""

from agar.cli.main import main


def test_the_page_goes_where_it_is_told(small_run, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["view", str(small_run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 4 of 4 episodes\n"
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_page_goes_into_the_run_folder_by_default(small_run, capsys):
    try:
        assert main(["view", str(small_run)]) == 0
        assert (small_run / "view.html").is_file()
    finally:
        (small_run / "view.html").unlink(missing_ok=True)


def test_it_says_what_was_left_out(small_run, tmp_path, capsys):
    assert main(["view", str(small_run), "--episodes", "1", "--out", str(tmp_path / "page.html")]) == 0
    assert "1 of 4 episodes, 3 left out (--episodes shows more)" in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["view", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert main(["view", str(tmp_path), "--episodes", "0"]) == 2
    assert "--episodes must be at least 1, got 0" in capsys.readouterr().err
