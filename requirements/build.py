"""Builds agar's environments on a machine without a GPU, with pip, in steps; needs Python's standard library only.

Two environments, kept in a cache (`$AGAR_CACHE`, else `~/.cache/agar`) under a hash of their requirement file and of
Python's version, so that two checkouts share them and a changed pin builds a new one:

- `agar-<hash>`: what `agar.txt` lists;
- `engine-<hash>`: what `engine.txt` lists, for SGLang's own processes.

On top of them, in this checkout, `.venv`: an environment of a few kilobytes that sees the packages of `agar-<hash>`
and this checkout's `agar` (editable), has a script for every command of both, and holds a link `.venv/engine` to
the engine's environment. Nothing of a checkout is ever written to the cache.

An environment counts as built once `built.json` stands in it, which is written last; anything else under its name is
removed and built anew. A lock keeps two builders apart.

Usage: python3 requirements/build.py [--cache DIR] [--venv DIR] [--check | --remove-old | --only NAME]
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
NAMES = ("agar", "engine")
LATER = ("clients", "gyms", "swe-rex")  # built by the tests and the benchmarks that use them
FREE_GIB = 8
STEP_TIMEOUT_S = 1800
# Outside of any environment, since this script may be run by the Python of the one that it is about to remove.
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class CannotBuild(Exception):
    """Something is missing or failed; the message says what and the remedy."""


# ------------------------------------------------------------------------------------------------- requirements


class Step:
    """One pip call: a title, pip's extra flags, and what to install; with `--optional` it may fail."""

    def __init__(self, title: str) -> None:
        """Split `title | flags`."""
        name, _, flags = title.partition("|")
        self.title, self.flags = name.strip(), [flag for flag in flags.split() if flag != "--optional"]
        self.optional = "--optional" in flags.split()
        self.requirements: list[str] = []


def steps(text: str) -> list[Step]:
    """The steps of a requirement file: each begins with a line `#: title | pip flags`."""
    found: list[Step] = []
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("#:"):
            found.append(Step(line[2:]))
        elif line and not line.startswith("#"):
            if not found:
                raise CannotBuild(
                    f"the requirement {line!r} stands before the first step: begin the file with '#: title'"
                )
            found[-1].requirements.append(line)
    return found


def pins(name: str) -> str:
    """The requirement file of an environment."""
    return (CHECKOUT / "requirements" / f"{name}.txt").read_text()


def key(name: str) -> str:
    """The hash that an environment is kept under."""
    wanted = [[step.flags, sorted(step.requirements)] for step in steps(pins(name))]
    parts = [wanted, sys.version.split()[0], platform.machine(), PYTHON]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def cache_folder() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("AGAR_CACHE") or Path.home() / ".cache" / "agar")


# ------------------------------------------------------------------------------------------------ prerequisites


def missing(cache: Path, *, to_build: bool) -> list[str]:
    """What this machine lacks, each with the remedy."""
    found: list[str] = []
    if platform.system() != "Linux":
        found.append(f"Linux is needed (bubblewrap, SGLang, Megatron-core), this is {platform.system()}")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        found.append("Python's venv module is missing: install it (on Debian: apt-get install python3-venv)")
    if to_build:
        cache.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(cache).free / 2**30
        if free < FREE_GIB:
            found.append(
                f"{free:.1f} GiB are free where the environments go ({cache}), {FREE_GIB} are needed: "
                "free some, or set AGAR_CACHE to a folder on another disk"
            )
    broken = user_namespaces()
    if broken:
        found.append(broken)
    return found


def user_namespaces() -> str | None:
    """Why a process may not make a user namespace, which every sandbox needs; None where it may."""
    code = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True);"
        "raise SystemExit(ctypes.get_errno() if libc.unshare(0x10000000) else 0)"  # CLONE_NEWUSER
    )
    refused = subprocess.run([PYTHON, "-c", code], capture_output=True, timeout=30).returncode
    if refused == 0:
        return None
    switches = {
        "kernel/unprivileged_userns_clone": "1",
        "kernel/apparmor_restrict_unprivileged_userns": "0",
        "user/max_user_namespaces": "15000",
    }
    hints = []
    for name, wanted in switches.items():
        path = Path("/proc/sys") / name
        now = path.read_text().strip() if path.exists() else wanted
        if now != wanted and (wanted != "15000" or now == "0"):
            hints.append(f"sysctl -w {name.replace('/', '.')}={wanted} (now {now})")
    remedy = "; ".join(hints) or "in a container, allow the unshare system call (its seccomp profile refuses it)"
    return f"user namespaces are refused ({os.strerror(refused)}), and every sandbox needs one: as root, {remedy}"


# ------------------------------------------------------------------------------------------------------ building


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a file lock; says so where another builder holds it.

    Yields its file descriptor. A child that inherits it keeps the lock if this process is killed, so that nobody
    removes an environment while an orphaned pip still writes to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build that holds {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def usable(folder: Path) -> bool:
    """Whether an environment was built to the end and its Python still starts."""
    python = folder / "bin" / "python"
    if not (folder / "built.json").is_file() or not python.exists():
        return False
    try:
        return subprocess.run([python, "-c", "pass"], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def build(name: str, cache: Path) -> Path:
    """The folder of an environment, built where it is not there yet."""
    folder = cache / f"{name}-{key(name)}"
    if usable(folder):
        say(f"{name}: {folder} (kept from before)")
        return folder
    with locked(cache / f"{folder.name}.lock") as lock:
        if usable(folder):
            return folder
        if folder.exists():
            say(f"{name}: removing {folder}, which was not built to the end")
            shutil.rmtree(folder)
        began = time.monotonic()
        todo = steps(pins(name))
        log = cache / f"{folder.name}.log"
        log.write_text("")
        run(f"{name} 1/{len(todo) + 1} an empty environment", [PYTHON, "-m", "venv", str(folder)], log, lock)
        python = str(folder / "bin" / "python")
        for number, step in enumerate(todo, 2):
            pip = [python, "-m", "pip", "install", "--no-input", "--progress-bar", "off", *step.flags]
            try:
                run(f"{name} {number}/{len(todo) + 1} {step.title}", [*pip, *step.requirements], log, lock)
            except CannotBuild:
                if not step.optional:
                    raise
                say(f"note: {step.title} is left out, since pip could not install it ({log} says why)")
        warn_of_cuda(folder)
        seconds = round(time.monotonic() - began, 1)
        half = folder / "built.json.half"
        half.write_text(json.dumps({"name": name, "python": sys.version.split()[0], "seconds": seconds}))
        half.rename(folder / "built.json")
        say(f"{name}: {folder} built in {seconds:.0f} s")
    return folder


def warn_of_cuda(folder: Path) -> None:
    """Say so where gigabytes of CUDA libraries came along although there is no GPU."""
    found = [path.name for path in folder.glob("lib/python*/site-packages/nvidia_*.dist-info")]
    if found and not Path("/dev/nvidiactl").exists():
        say(
            f"note: {len(found)} CUDA packages were installed though there is no GPU, because pip found no CPU build "
            "of torch. Put the folder of a CPU wheel in PIP_FIND_LINKS and build again to save several GB"
        )


def run(title: str, command: list[str], log: Path, *inherited: int) -> None:
    """Run one step with its output in `log`; on a terminal, the last line of it is shown while it runs.

    `inherited` are file descriptors that the step shares.
    """
    began, last = time.monotonic(), ""
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET"}}
    env = {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    live = sys.stdout.isatty()
    with (
        log.open("a") as sink,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, pass_fds=inherited
        ) as process,
    ):
        sink.write(f"$ {' '.join(command)}\n")
        deadline = threading.Timer(STEP_TIMEOUT_S, process.kill)
        deadline.daemon = True
        deadline.start()
        try:
            for line in process.stdout or ():
                sink.write(line)
                last = line.strip() or last
                if live:
                    say(f"{title}: {last}", stays=False)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            deadline.cancel()
    seconds = time.monotonic() - began
    if code:
        tail = "\n    ".join(log.read_text().splitlines()[-12:])
        why = f"was ended after {STEP_TIMEOUT_S} s" if seconds >= STEP_TIMEOUT_S else f"failed with code {code}"
        raise CannotBuild(f"{title} {why}; the end of {log}:\n    {tail}\nRun the same command again to go on.")
    say(f"{title}: {seconds:.0f} s")


# ------------------------------------------------------------------------------------------- this checkout's .venv


def link(venv: Path, agar: Path, engine: Path) -> None:
    """Make this checkout's own environment on top of the cached ones."""
    project = (CHECKOUT / "pyproject.toml").read_bytes()
    want = {
        "agar": str(agar),
        "engine": str(engine),
        "project": hashlib.sha256(project).hexdigest(),
        "at": str(CHECKOUT),
    }
    stamp = venv / "built.json"
    if usable(venv) and json.loads(stamp.read_text()) == want:
        say(f"this checkout: {venv} (kept from before)")
        return
    began = time.monotonic()
    if venv.exists():
        shutil.rmtree(venv)
    log = venv.with_name(f"{venv.name}.log")
    log.write_text("")
    run("this checkout 1/2 an empty environment", [PYTHON, "-m", "venv", "--without-pip", str(venv)], log)
    [packages] = venv.glob("lib/python*/site-packages")
    [cached] = agar.glob("lib/python*/site-packages")
    # addsitedir, not a bare path, so that .pth files of the cached packages are honoured too.
    (packages / "cached.pth").write_text(f"import site; site.addsitedir({str(cached)!r})\n")
    for script in sorted((agar / "bin").iterdir()):
        borrow(script, agar, venv)
    (venv / "engine").symlink_to(engine)
    install = ["-m", "pip", "install", "--no-input", "--no-deps", "--no-build-isolation", "-e", str(CHECKOUT)]
    run("this checkout 2/2 agar, editable", [str(venv / "bin" / "python"), *install], log)
    stamp.write_text(json.dumps(want))
    log.unlink()
    say(f"this checkout: {venv} made in {time.monotonic() - began:.0f} s")


def borrow(script: Path, agar: Path, venv: Path) -> None:
    """Give the checkout's environment a command of the cached one, run by the checkout's own Python."""
    target = venv / "bin" / script.name
    if target.exists() or target.is_symlink() or script.name.lower().startswith(("activate", "python", "pip")):
        return
    start, _, rest = script.read_bytes().partition(b"\n")
    if start.startswith(b"#!") and str(agar).encode() in start:
        target.write_bytes(b"#!" + str(venv / "bin" / "python").encode() + b"\n" + rest)
        target.chmod(0o755)
    else:
        target.symlink_to(script)


# ---------------------------------------------------------------------------------------------------------- main


def remove_old(cache: Path) -> None:
    """Remove environments that this checkout's files do not ask for."""
    names = (*NAMES, *LATER)
    wanted = {f"{name}-{key(name)}" for name in names}
    for path in sorted(cache.glob("*-????????????")):
        if path.name not in wanted and path.name.rpartition("-")[0] in names:
            say(f"removing {path}")
            shutil.rmtree(path)


def say(text: str, *, stays: bool = True) -> None:
    """Print one line of progress; one that does not stay is written over by the next."""
    clear = "\r\x1b[K" if sys.stdout.isatty() else ""
    line = f"  {text}" if stays else f"  {text}"[: shutil.get_terminal_size().columns - 1]
    sys.stdout.write(f"{clear}{line}" + ("\n" if stays else ""))
    sys.stdout.flush()


def main() -> int:
    """Build what is missing; the exit code is 1 where something is missing that this script cannot get."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where environments are kept")
    parser.add_argument("--venv", type=Path, default=CHECKOUT / ".venv", help="this checkout's environment")
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    parser.add_argument("--remove-old", action="store_true", help="remove cached environments no longer asked for")
    parser.add_argument("--only", choices=(*NAMES, *LATER), help="build this environment only, and print its folder")
    options = parser.parse_args()
    cache, venv = options.cache.resolve(), options.venv.absolute()
    try:
        if options.remove_old:
            remove_old(cache)
            return 0
        if options.only:
            cache.mkdir(parents=True, exist_ok=True)
            print(build(options.only, cache))
            return 0
        found = missing(cache, to_build=not all(usable(cache / f"{name}-{key(name)}") for name in NAMES))
        if found:
            raise CannotBuild("\n".join(found))
        if not options.check:
            with ThreadPoolExecutor(len(NAMES)) as both:  # pip is one thread of work, and so are two of them
                agar, engine = both.map(lambda name: build(name, cache), NAMES)
            link(venv, agar, engine)
    except CannotBuild as error:
        print(f"cannot build the environments:\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036  # the message is for those who have an older one
        sys.exit(
            f"Python 3.11 or newer is needed, this is {sys.version.split()[0]} ({sys.executable}): "
            "install one and run `make PYTHON=python3.11 ...`"
        )
    sys.exit(main())
