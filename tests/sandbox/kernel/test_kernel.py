"""Cells in a real interpreter in a real sandbox: what stays, what is shown, what ends them, what they cannot break."""

import asyncio
import base64
import json

import pytest

from agar.errors import SandboxError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.fake import FakeSandbox
from agar.sandbox.kernel.config import KernelConfig
from agar.sandbox.kernel.kernel import Kernel

pytestmark = pytest.mark.sandbox
SOON = KernelConfig(cell_timeout_s=0.5, interrupt_grace_s=0.5)
PATIENT = KernelConfig(cell_timeout_s=30)


@pytest.fixture
async def sandbox():
    async with create(SandboxSpec()) as opened:
        yield opened


@pytest.fixture
async def kernel(sandbox):
    async with Kernel(sandbox, PATIENT) as opened:
        yield opened


async def test_variables_functions_and_imports_stay_from_one_cell_to_the_next(kernel):
    assert (await kernel.run("import math\nx = 3\ndef f(y):\n    return x * y")).to_text() == ""
    assert (await kernel.run("print(math.floor(2.5))\nf(7)")).to_text() == "2\n21"
    assert (await kernel.run("x = 5; f(7)")).to_text() == "35"
    assert (await kernel.run("f(7);")).to_text() == ""
    assert (await kernel.run("_ + 1")).to_text() == "36"


async def test_a_traceback_shows_the_cells_own_lines_and_nothing_of_ours(kernel):
    await kernel.run("def f():\n    return 1 / 0")
    cell = await kernel.run("f()")
    assert cell.status == "error"
    assert 'File "<cell 2>", line 1, in <module>\n    f()' in cell.error
    assert 'File "<cell 1>", line 2, in f\n    return 1 / 0' in cell.error
    assert cell.error.endswith("ZeroDivisionError: division by zero\n")
    assert "<string>" not in cell.error
    assert (await kernel.run("a b")).error.startswith('  File "<cell 3>", line 1\n    a b')


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("exit(3)", "SystemExit: 3"),
        ("input()", "EOFError"),
        ("def f(): f()\nf()", "RecursionError"),
        ("class A:\n    def __repr__(self): raise ValueError('no name')\nA()", "ValueError: no name"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E: <exception str() failed>"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("'\\0'.encode('ascii').decode('utf-16')", "UnicodeDecodeError"),
        ("null\0byte", "null bytes"),
        ("x = '\ud800'", "surrogates not allowed"),
        ("(" * 1000 + ")" * 1000, "too many nested parentheses"),
    ],
)
async def test_whatever_a_cell_raises_is_told_and_the_next_one_runs(kernel, code, said):
    await kernel.run("kept = 1")
    assert said in (await kernel.run(code)).to_text()
    assert (await kernel.run("kept")).to_text() == "1"


async def test_output_of_python_of_subprocesses_and_of_raw_bytes_comes_in_order(kernel):
    cell = await kernel.run(
        "import os, subprocess, sys\n"
        "print('one'); print('two', file=sys.stderr); subprocess.run(['echo', 'three'])\n"
        "os.write(1, b'\\xff\\x00four\\n'); print('\\ud800');"
    )
    assert cell.output == "one\ntwo\nthree\n\ufffd\0four\n\\ud800\n"


async def test_100_mb_of_output_are_cut_to_their_beginning_and_end_with_a_notice(kernel):
    cell = await kernel.run("print('first')\nfor _ in range(100): print('x' * 1_048_575)\nprint('last')")
    total = 100 * 1_048_576 + len("first\nlast\n")
    kept = KernelConfig().output_bytes
    assert cell.status == "ok"
    assert cell.cut_bytes == total - kept
    assert cell.output.startswith("first\nxxx")
    assert cell.output.endswith("xxx\nlast\n")
    assert f"\n[... {cell.cut_bytes} bytes left out ...]\n" in cell.output
    assert len(cell.output) < kept + 100
    assert (await kernel.run("1 + 1")).to_text() == "2"


async def test_values_are_shown_in_every_form_that_fits(kernel):
    code = (
        "class Rich:\n"
        "    def __repr__(self): return 'plain'\n"
        "    def _repr_html_(self): return '<b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_latex_(self): raise ValueError\n"
        "    def _repr_svg_(self): return None\n"
        "    def _repr_json_(self): return {'big': 'x' * 10**6}\n"
    )
    await kernel.run(code)
    cell = await kernel.run("display(1)\nRich()")
    assert cell.shown == (
        {"text/plain": "1"},
        {
            "text/plain": "plain",
            "text/html": "<b>",
            "application/json": None,
            "image/png": base64.b64encode(b"\x89PNG").decode(),
        },
    )
    assert cell.to_text() == "1\nplain [text/html, application/json, image/png]"
    long = await kernel.run("'x' * 10**6")
    assert long.shown[0]["text/plain"].endswith("x[... 934466 characters left out]")


async def test_what_was_drawn_is_shown_as_a_picture(kernel):
    code = """
    import sys, types
    plot = sys.modules["matplotlib.pyplot"] = types.ModuleType("matplotlib.pyplot")
    class Figure:
        def savefig(self, file, format): file.write(b"a " + format.encode())
        def __repr__(self): return "<Figure>"
    drawn = [1]
    plot.get_fignums, plot.figure, plot.close = lambda: drawn, lambda number: Figure(), lambda which: drawn.clear()
    """
    cell = await kernel.run("\n".join(line.removeprefix("    ") for line in code.splitlines()))
    assert cell.shown == ({"text/plain": "<Figure>", "image/png": base64.b64encode(b"a png").decode()},)
    assert (await kernel.run("1")).to_text() == "1"


async def test_a_cell_is_interrupted_at_its_deadline_and_keeps_its_variables(kernel):
    for work in (
        "while True: pass",
        "import time; time.sleep(60)",
        "import subprocess; subprocess.run(['sleep', '60'])",
    ):
        cell = await kernel.run(f"x = 3\nprint('before')\n{work}", timeout_s=0.3)
        assert cell.status == "interrupted"
        assert cell.output == "before\n"
        assert cell.error.endswith("KeyboardInterrupt\n")
        assert "on_interrupt" not in cell.error
        assert cell.notices == ("The cell was ended after 0.3 s.",)
        assert (await kernel.run("x")).to_text() == "3"


async def test_a_cell_is_interrupted_on_request(kernel):
    await kernel.run("x = 3")
    running = asyncio.create_task(kernel.run("open('up', 'w').close()\nwhile True: pass"))
    for _ in range(1000):
        if (await kernel._sandbox.exec("ls up")).code == 0:
            break
    await kernel.interrupt()
    assert (await running).status == "interrupted"
    assert (await running).notices == ()
    await kernel.interrupt()  # nothing runs: nothing happens
    assert (await kernel.run("x")).to_text() == "3"


STUBBORN = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"


async def test_a_cell_that_ignores_the_interrupt_is_killed_and_the_next_one_is_told(sandbox):
    async with Kernel(sandbox, SOON) as kernel:
        await kernel.run("x = 3")
        cell = await kernel.run(f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{STUBBORN}")
        assert cell.status == "died"
        assert cell.notices == (
            "The cell was ended after 0.5 s.",
            "The interpreter died (signal 9): a new one has started, without variables.",
        )
        assert "NameError" in (await kernel.run("x")).to_text()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; print('on'); os._exit(3)", "exit status 3"),
        ("import os; print('on'); os.abort()", "signal 6"),
        ("import ctypes; print('on'); ctypes.string_at(0)", "signal 11"),
        ("print('on')\nx = []\nwhile True: x.append(bytearray(10**6))", "signal 9|MemoryError"),
    ],
)
async def test_an_interpreter_that_dies_says_how_and_a_new_one_goes_on(kernel, code, how):
    cell = await kernel.run(code)
    assert cell.output.startswith("on\n")
    assert any(word in cell.to_text() for word in how.split("|"))
    assert (await kernel.run("1 + 1")).to_text() == "2"


MEDDLING = {
    "kills its supervisor": "import os; os.kill(os.getppid(), 9)\nwhile True: pass",
    "stops its supervisor": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass",
    "kills everything": "import os; os.kill(-1, 9)",
    "writes garbage to every descriptor": (
        "import os\nfor fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    try: os.write(fd, b'\\xff' * 100)\n    except OSError: pass\nwhile True: pass"
    ),
    "writes to its supervisor's descriptors": (
        "import os\nup = f'/proc/{os.getppid()}/fd/'\nfor name in os.listdir(up):\n"
        "    try: os.write(os.open(up + name, os.O_WRONLY | os.O_NONBLOCK), b'\\0\\0\\0\\2{}')\n"
        "    except OSError: pass\nwhile True: pass"
    ),
    "answers half": "import os, socket\nos.write(max(map(int, os.listdir('/proc/self/fd'))) - 1, b'\\0\\0\\1\\0{')\n1",
    "leaves a writer behind": "import os\nif os.fork() == 0:\n    while True: print('noise')",
    "forks until it cannot": "import os\nwhile True: os.fork()",
    "forks and goes on": "import os\nos.fork()",
    "closes everything": "import os; os.closerange(0, 100)",
}


@pytest.mark.parametrize("code", MEDDLING.values(), ids=MEDDLING)
async def test_a_cell_that_meddles_with_the_machinery_hurts_itself_only(sandbox, code):
    async with Kernel(sandbox, SOON) as kernel:
        await kernel.run(code)  # whatever it says, it comes back
        for _ in range(3):
            cell = await kernel.run("print(6 * 7)")
            if cell.status == "ok":
                break
        assert "42" in cell.output


async def test_a_supervisor_that_was_stopped_before_a_long_cell_does_not_hold_anybody_up(sandbox):
    async with Kernel(sandbox, SOON) as kernel:
        later = "import os, signal, threading\nup = os.getppid()\n"
        await kernel.run(later + "threading.Timer(0.2, os.kill, (up, signal.SIGSTOP)).start()")
        await asyncio.sleep(0.4)
        assert (await kernel.run("#" * 1_000_000)).status == "died"
        assert (await kernel.run("1 + 1")).to_text() == "2"


async def test_a_restart_forgets_and_a_close_leaves_nothing(sandbox):
    kernel = Kernel(sandbox, PATIENT)
    await kernel.run("x = 3\nimport subprocess; subprocess.Popen(['sleep', '1000'])")
    await kernel.restart()
    assert "NameError" in (await kernel.run("x")).to_text()
    await kernel.close()
    await kernel.close()
    assert (await kernel.run("1")).to_text() == "1"
    await kernel.close()


async def test_a_cancelled_cell_ends_with_its_interpreter(kernel):
    running = asyncio.create_task(kernel.run("while True: pass"))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await kernel.run("1 + 1")).to_text() == "2"


async def test_every_cell_leaves_a_line_for_the_audit(kernel, caplog):
    with caplog.at_level("INFO", logger="agar.sandbox.audit"):
        await kernel.run("x = 1")
        await kernel.run("1 / 0")
    lines = [json.loads(record.message) for record in caplog.records if '"cell"' in record.message]
    told = [(line["cell"], line["code"], line["status"]) for line in lines]
    assert told == [(1, "x = 1", "ok"), (2, "1 / 0", "error")]


async def test_cells_asked_for_side_by_side_run_one_after_the_other(kernel):
    await kernel.run("n = 0")
    cells = await asyncio.gather(*(kernel.run("n += 1; n") for _ in range(20)))
    assert sorted(int(cell.to_text()) for cell in cells) == list(range(1, 21))


async def test_a_sandbox_without_python_is_infrastructure_and_says_so(sandbox):
    kernel = Kernel(sandbox, KernelConfig(python="no-such-python"))
    with pytest.raises(SandboxError, match=r"'no-such-python' did not start as an interpreter \(exit status 127\)"):
        await kernel.run("1")


async def test_a_sandbox_that_is_closed_under_it_is_infrastructure():
    sandbox = create(SandboxSpec())
    kernel = Kernel(sandbox)
    await kernel.run("x = 1")
    await sandbox.close()
    assert (await kernel.run("x")).status == "died"
    with pytest.raises(SandboxError, match="closed"):
        await kernel.run("x")


@pytest.mark.parametrize("said", [b"", b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\2{}"])
async def test_what_does_not_begin_as_an_interpreter_does_is_refused(said):
    def talk(call):
        return lambda data: None

    sandbox = FakeSandbox(SandboxSpec(backend="fake"), talk=talk)
    process = await sandbox.start("x")
    process._said.put_nowait(said)
    process._said.put_nowait(b"")

    async def start(*_, **__):
        return process

    sandbox.start = start
    with pytest.raises(SandboxError, match="did not start as an interpreter"):
        await Kernel(sandbox).run("1")


async def test_a_kernel_runs_in_a_container_too(docker_spec):
    async with create(docker_spec) as sandbox, Kernel(sandbox, PATIENT) as kernel:
        await kernel.run("x = 3")
        assert (await kernel.run("while True: pass", timeout_s=0.5)).status == "interrupted"
        assert (await kernel.run("import os; os.system('echo said')\nx")).to_text() == "said\n3"
