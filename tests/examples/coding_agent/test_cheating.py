"""Nothing but mending the code earns anything, whatever else an agent does to its folder, sandbox and process.

Each way is tried twice: alone, where it must earn nothing, and beside an honest repair, which must still earn 1, so
that no way passes here only because it breaks the judge.
"""

import base64
import json

import pytest
from tests.examples.coding_agent.conftest import Repairs

from agar.envs.artifacts import Artifacts
from agar.examples.coding_agent import verify

pytestmark = [pytest.mark.sandbox]

CHEAT = "import unittest; unittest.TestCase.run = lambda self, result=None: result"
"""Lets every test of a process pass, if it gets into one."""
COMMANDS = {
    # What the agent can see of tests is its own copy; the judge lays out the task's.
    "edit the tests": "for f in tests/*.py; do echo 'import unittest' > $f; done",
    "delete the tests": "rm -rf tests",
    "plant tests that pass": "for f in tests/__init__.py test_outputs.py tests/test_outputs.py; do cp CHEAT $f; done",
    # What interpreters and test runners obey is never laid out.
    "plant a conftest.py": "cp CHEAT conftest.py; cp CHEAT tests/conftest.py",
    "plant a sitecustomize.py": "cp CHEAT sitecustomize.py; cp CHEAT usercustomize.py",
    "plant a .pth file": """
        site=.local/lib/python3.11/site-packages
        mkdir -p $site; cp CHEAT cheat.pth; cp CHEAT $site/cheat.pth; cp CHEAT $site/usercustomize.py
    """,
    "plant settings and a plugin of pytest": """
        cp CHEAT cheat.py
        printf '[pytest]\\naddopts = -p cheat\\n' | tee pytest.ini > tox.ini
        printf '[tool:pytest]\\naddopts = -p cheat\\n' > setup.cfg
        printf '[tool.pytest.ini_options]\\naddopts = "-p cheat"\\n' > pyproject.toml
    """,
    # The judge's sandbox has the PATH, HOME and variables that it is made with.
    "plant programs before those of the system": """
        mkdir -p bin .local/bin
        printf '#!/bin/sh\\nmkdir -p /tmp/logs/verifier; echo 1 > /tmp/logs/verifier/reward.txt\\n' > bin/sh
        chmod +x bin/sh
        for name in python3 cat python; do cp bin/sh bin/$name; cp bin/sh $name; cp bin/sh .local/bin/$name; done
        echo 'export PATH=/work/bin:/work:$PATH' | tee .profile .bashrc .bash_profile > .env
    """,
    "hide modules of Python's own": "for name in json sys unittest importlib; do cp CHEAT $name.py; done",
    # The judge's sandbox is another one, and the reward is not read from the repository.
    "forge result files": """
        mkdir -p /tmp/logs/verifier logs/verifier
        for f in /tmp/logs/verifier/reward.txt logs/verifier/reward.txt reward.txt /tmp/reward.txt result.json
        do echo 1 > $f; done
    """,
    "leave a process behind": """
        (setsid nohup sh -c 'while :; do
            mkdir -p /tmp/logs/verifier; echo 1 > /tmp/logs/verifier/reward.txt
            for f in /work/tests/*; do echo > $f; done; sleep 0.05
        done' > /dev/null 2>&1 &)
        sleep 0.2
    """,
    "write a grader of one's own": """
        mkdir -p tests /tmp/tests
        for f in tests/verify.py tests/test.sh /tmp/tests/test.sh test.sh
        do echo 'echo 1 > /tmp/logs/verifier/reward.txt' > $f; done
        echo '[]' | tee cases.json > tests/cases.json
    """,
    # Links and special files are never followed, and hold nobody up.
    "leave links and pipes": """
        ln -s /tests/cases.json answers.json; ln -s / root; ln -s /proc/self/environ e.py; ln -s /tests tests/hidden
        mkfifo pipe.py
    """,
    "leave more than anybody wants to judge": "head -c 20000000 /dev/zero > filler",
}
NOT_JUDGED = {"leave more than anybody wants to judge"}
"""What costs an honest repair its reward too."""
BEYOND = {("hide modules of Python's own", "script")}
"""What a script that runs in the repository's folder falls for: it must be written with `python3 -I`."""


@pytest.mark.parametrize("honest", [False, True], ids=["alone", "beside a repair"])
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in COMMANDS for kind in ("calls", "script") if (name, kind) not in BEYOND]
)
async def test_what_is_done_to_the_folder_changes_nothing(repairs: Repairs, name: str, kind: str, honest: bool) -> None:
    await repairs.start(kind)
    await repairs.env.sb.write("/tmp/cheat", CHEAT)
    done = await repairs.env.sb.exec(COMMANDS[name].replace("CHEAT", "/tmp/cheat"), timeout_s=30)
    assert done.code == 0, done
    if honest:
        await repairs.mend()
    assert await repairs.reward() == float(honest and name not in NOT_JUDGED)


CODE = {
    "end the process as if all were well": "import os; os._exit(0)",
    "end the process with forged results": """
import os
print([{"returns": True}] * 99, flush=True)
os._exit(0)
""",
    "print forged results at the end": """
import atexit
atexit.register(lambda: print('[{"returns": 1}]'))
""",
    "print brackets without end": """
import os
os.write(1, b"\\n" + b"[" * 100_000)
os._exit(0)
""",
    "return what equals everything": """
class Any(int):
    __eq__ = lambda self, other: True
    __hash__ = int.__hash__
def FUNCTION(*args):
    return Any()
""",
    "return what cannot be written": """
def FUNCTION(*args):
    return type("Any", (), {"__eq__": lambda self, other: True})()
""",
    "change how results are written": """
import json
json.dumps = lambda value: "[]"
""",
    "look for the answers in the frames above": """
import sys
def FUNCTION(*args):
    return [call["returns"] for call in sys._getframe(1).f_globals["calls"] if call["args"] == list(args)][0]
""",
    "look for the answers in memory": """
import gc
def FUNCTION(*args):
    return [found["returns"] for found in gc.get_objects() if isinstance(found, dict) and "returns" in found][0]
""",
    "look for the answers on the disk": """
import glob
def FUNCTION(*args):
    return [open(path).read() for path in glob.glob("/t*/**/*.json", recursive=True)][0]
""",
    "write the reward": """
import os
for folder in ("/tmp/logs/verifier", "/logs/verifier"):
    try:
        os.makedirs(folder)
        open(folder + "/reward.txt", "w").write("1")
    except OSError:
        pass
""",
    "leave a process that writes later": """
import os, time
if os.fork() == 0:
    time.sleep(0.3)
    print('[{"returns": 1}]', flush=True)
    os._exit(0)
""",
    "kill the process above": """
import os, signal
try:
    os.kill(os.getppid(), signal.SIGKILL)
except OSError:
    pass
""",
    "write the reward and end everybody": """
import os, signal
os.makedirs("/tmp/logs/verifier", exist_ok=True)
open("/tmp/logs/verifier/reward.txt", "w").write("1")
os.kill(-1, signal.SIGKILL)
""",
    "write the reward and wait for the deadline": """
import os, signal, time
os.makedirs("/tmp/logs/verifier", exist_ok=True)
open("/tmp/logs/verifier/reward.txt", "w").write("1")
os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(60)
""",
    "flood the output": "while True: print('[' * 1000)",
    "use all memory": "hog = bytearray(1 << 40)",
}


@pytest.mark.parametrize("kind", ["calls", "subprocess"])
@pytest.mark.parametrize("name", CODE)
async def test_what_the_code_does_when_it_is_called_changes_nothing(repairs: Repairs, name: str, kind: str) -> None:
    task = await repairs.start(kind)
    if "deadline" in name:
        object.__setattr__(task, "verifier_timeout_s", 3.0)
    known = task.metadata
    code = CODE[name].replace("FUNCTION", known["function"])
    before = (await repairs.env.sb.read(known["path"])).decode()
    await repairs.env.sb.write(known["path"], f"{before}\n\n{code}\n")
    assert await repairs.reward() == 0.0


async def test_code_that_hangs_earns_nothing_and_is_ended(repairs: Repairs) -> None:
    task = await repairs.start("calls")
    object.__setattr__(task, "verifier_timeout_s", 1.0)
    await repairs.env.sb.write(str(task.metadata["path"]), "while True: pass\n")
    assert await repairs.reward() == 0.0


async def test_the_agents_sandbox_holds_neither_hidden_tests_nor_the_solution(repairs: Repairs) -> None:
    task = await repairs.start("script")
    seen = await repairs.env.sb.exec(
        "find / -path /proc -prune -o -type f -newer /etc/passwd -print; ls /tests /solution"
    )
    assert "test_outputs" not in seen.stdout + seen.stderr
    everything = await repairs.env.sb.exec("cat $(find /work /tmp -type f)")
    assert task.metadata["right"] not in everything.stdout
    assert task.metadata["wrong"] in everything.stdout


@pytest.mark.parametrize("kind", ["calls", "script"])
async def test_files_handed_in_as_a_text_are_held_to_the_same(repairs: Repairs, kind: str) -> None:
    task = await repairs.start(kind)
    files = {"tests/test_outputs.py": CHEAT, "conftest.py": CHEAT, "../tests/test.sh": "", "/tests/test.sh": ""}
    text = json.dumps({"artifacts": {path: base64.b64encode(data.encode()).decode() for path, data in files.items()}})
    assert await repairs.reward(text) == 0.0
    await repairs.start(kind)
    known = task.metadata
    mended = {
        **task.repository,
        known["path"]: task.repository[known["path"]].replace(known["wrong"].encode(), known["right"].encode()),
    }
    assert await repairs.reward(Artifacts(files={**mended, "conftest.py": b"1 / 0"}).to_text()) == 1.0


@pytest.mark.parametrize("kind", ["calls", "script", "subprocess"])
async def test_doing_nothing_earns_nothing_and_mending_earns_one(repairs: Repairs, kind: str) -> None:
    await repairs.start(kind)
    assert await repairs.reward() == 0.0
    await repairs.start(kind)
    await repairs.env.sb.write("notes.txt", "something changed, but nothing was mended")
    assert await repairs.reward() == 0.0
    await repairs.start(kind)
    await repairs.mend()
    assert await repairs.reward() == 1.0


def test_the_answers_never_enter_the_process_that_is_judged() -> None:
    cases = [{"call": "m:f", "args": [1], "returns": "secret"}, {"call": "m:g", "args": [], "raises": "KeyError"}]
    assert "secret" not in verify.questions(cases)
    assert "KeyError" not in verify.questions(cases)
