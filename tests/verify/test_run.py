"""The frame of `make verify`: bounds, repetition, going on where it stopped."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.scripts import script

RUN = Path(__file__).with_name("run.py")


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The script as a module, keeping its reports in a folder of the test's."""
    with script(RUN) as module:
        monkeypatch.setattr(module, "CHECKOUT", tmp_path)
        make_repository(tmp_path)
        yield module


def make_repository(place: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(place)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)


JOB = """
[[job]]
name = "learn"
group = "learning"
claim = "It learns."
command = ["{python}", "-c", "import json, sys; json.dump({'gain': 0.1 * {seed}}, open('{out}/result.json', 'w'))"]
checks = { gain = ">= 0.15" }
each = { seed = [1, 2] }
"""


def test_the_jobs_of_this_repository_are_valid(verify: ModuleType) -> None:
    jobs = verify.read_jobs(RUN.with_name("jobs.toml"))
    assert {job.group for job in jobs} >= {"fuzzing"}
    for job in jobs:
        for key, bound in job.checks.items():
            verify.broken({key: 0.0}, key, bound)  # a bound that cannot be read raises


def test_each_value_is_a_job_with_bounds_on_what_it_measured(verify: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOB)
    one, two = verify.read_jobs(tmp_path / "jobs.toml")
    assert (one.name, two.name) == ("learn-seed-1", "learn-seed-2")
    first, second = verify.run(one, tmp_path / one.name), verify.run(two, tmp_path / two.name)
    assert (first.holds, first.why) == (False, "gain is 0.1, expected >= 0.15")
    assert (second.holds, second.measured) == (True, {"gain": 0.2})


def test_a_name_chooses_the_job_that_has_it_else_those_that_begin_with_it(verify: ModuleType) -> None:
    jobs = verify.read_jobs(Path(__file__).with_name("jobs.toml"))

    def names(*only: str) -> list[str]:
        return [job.name for job in verify.chosen(jobs, only)]

    assert names("search") == ["search"]
    assert names("search-r1") == ["search-r1-seed-1", "search-r1-seed-2", "search-r1-seed-3"]
    assert names("gateway", "fuzz-s") == ["gateway", "fuzz-settings"]
    assert len(names("")) == len(jobs)
    assert names("nobody") == []


def test_a_report_counts_only_for_the_job_as_it_stands(verify: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOB)
    job = verify.read_jobs(tmp_path / "jobs.toml")[1]
    folder = tmp_path / job.name
    assert verify.kept(job, folder) is None
    report = verify.run(job, folder)
    assert verify.kept(job, folder) == report
    assert verify.kept(job.model_copy(update={"checks": {"gain": ">= 0.9"}}), folder) is None


def test_a_report_is_current_until_something_that_it_covers_changes(verify: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOB)
    job = verify.read_jobs(tmp_path / "jobs.toml")[1].model_copy(update={"covers": ("src", ":!src/apart")})
    for name in ("src/a", "src/apart/b", "docs/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    report = verify.run(job, tmp_path / "out")
    (tmp_path / "src/apart/b").write_text("two")
    (tmp_path / "docs/c").write_text("two")
    assert verify.current(report, job)
    (tmp_path / "src/a").write_text("two")
    assert not verify.current(report, job)
    subprocess.run(["git", "-C", str(tmp_path), "add", "."], check=True)
    assert not verify.current(report, job)


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [(">= 0.5", 0.5, 0.49), ("<= 0.05", 0.05, 0.051), ("== 0", 0.0, 1.0), ("0.1 .. 0.4", 0.4, 0.41)],
)
def test_bounds_include_their_ends(verify: ModuleType, bound: str, good: float, bad: float) -> None:
    assert verify.broken({"x": good}, "x", bound) is None
    assert verify.broken({"x": bad}, "x", bound) == f"x is {bad:g}, expected {bound}"
    assert verify.broken({}, "x", bound) == "x was not measured"


def test_a_job_that_takes_too_long_or_exits_badly_does_not_hold(verify: ModuleType, tmp_path: Path) -> None:
    base = {"name": "a", "group": "b", "claim": "c"}
    slow = verify.Job(**base, command=("{python}", "-c", "import time; time.sleep(30)"), timeout_s=0.5)
    assert verify.run(slow, tmp_path / "slow").why == "ended after 0 s"
    bad = verify.Job(**base, command=("{python}", "-c", "raise SystemExit(3)"))
    assert verify.run(bad, tmp_path / "bad").why.startswith("exit code 3; see ")


def test_the_page_says_what_was_claimed_measured_and_not_run(
    verify: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.toml").write_text(JOB)
    jobs = [job.model_copy(update={"covers": ("jobs.toml",)}) for job in verify.read_jobs(tmp_path / "jobs.toml")]
    verify.run(jobs[1], tmp_path / jobs[1].name)
    text = verify.page("learning", jobs, tmp_path)
    assert "| learn-seed-1 | It learns. | not run |" in text
    assert "| learn-seed-2 | It learns. | yes | gain 0.2 (>= 0.15) |" in text
    assert "has changed since" not in text
    monkeypatch.setattr(verify, "sources", lambda job: "other")
    assert f"{verify.commit()}, what it covers has changed since |" in verify.page("learning", jobs, tmp_path)
    assert "cores" in text


def test_rows_that_another_checkout_measured_stay(verify: ModuleType, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *author, "-C", str(tmp_path), *words], check=True, capture_output=True)

    (tmp_path / "jobs.toml").write_text(JOB)
    git("add", ".")
    git("commit", "-m", "second")
    jobs = [job.model_copy(update={"covers": ("jobs.toml",)}) for job in verify.read_jobs(tmp_path / "jobs.toml")]
    verify.run(jobs[1], tmp_path / "there" / jobs[1].name)
    there = verify.page("learning", jobs, tmp_path / "there")
    verify.run(jobs[0], tmp_path / "here" / jobs[0].name)
    rows = verify.page("learning", jobs, tmp_path / "here", there).splitlines()
    assert rows[-2].startswith("| learn-seed-1 | It learns. | **no**: gain is 0.1")
    assert rows[-1] == there.splitlines()[-1]
    (tmp_path / "jobs.toml").write_text(JOB + "\n")
    for _ in range(2):  # said once
        rows = verify.page("learning", jobs, tmp_path / "here", "\n".join(rows)).splitlines()
        assert rows[-1] == there.splitlines()[-1].replace("` |", "`, what it covers has changed since |")
    other = [job.model_copy(update={"claim": "It learns more."}) for job in jobs]
    assert verify.page("learning", other, tmp_path / "nowhere", there).count("| not run |") == 2
    elsewhere = there.replace("GiB of memory", "GiB of other memory")
    assert verify.page("learning", jobs, tmp_path / "nowhere", elsewhere).count("| not run |") == 2


def test_a_suite_says_how_many_passed_and_its_properties(verify: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_a(record_testsuite_property): record_testsuite_property('ctrl_c_s', 1.5)\n"
        "def test_b(): pass\n"
        "@pytest.mark.skip\n"
        "def test_c(): pass\n"
    )
    command = ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py"))
    job = verify.Job(name="a", group="b", claim="c", command=command, checks={"ctrl_c_s": "<= 10"})
    report = verify.run(job, tmp_path / "out")
    assert (report.holds, report.measured) == (True, {"passed": 2, "ctrl_c_s": 1.5})


SLEEP = """
[[job]]
name = "sleep"
group = "any"
claim = "It is told to end."
command = ["{python}", "-c", "import os, time; open('{out}/pid', 'w').write(f'{os.getpid()}.'); time.sleep(600)"]
each = { number = [1, 2] }
"""


@pytest.mark.parametrize("ignored", [False, True], ids=["started-by-hand", "started-in-the-background"])
@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_the_runner_ends_its_job_and_no_other_begins(tmp_path: Path, name: int, ignored: bool) -> None:
    scripts = tmp_path / "tests" / "verify"
    scripts.mkdir(parents=True)
    shutil.copy(RUN, scripts)
    (scripts / "jobs.toml").write_text(SLEEP)
    make_repository(tmp_path)
    runner = subprocess.Popen(
        [sys.executable, "-P", str(scripts / RUN.name)],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 40
        while not (found := [path for path in tmp_path.rglob("pid") if path.read_text().endswith(".")]):
            assert time.monotonic() < deadline, "the first job did not begin"
            assert runner.poll() is None
            time.sleep(0.05)
        runner.send_signal(name)
        runner.wait(40)
    finally:
        runner.kill()
        runner.wait()
    assert list(tmp_path.rglob("pid")) == found, "another job began"
    assert not Path("/proc", found[0].read_text().rstrip(".")).exists()
