"""A module of environments that misbehave, importable by name in any process."""

import textwrap

import pytest

MODULE = textwrap.dedent('''
    import os, subprocess, sys, threading, time
    import agar
    from agar.errors import SandboxError

    FORGED = b'{"result": {"observation": "", "reward": 9.0, "terminated": true, "truncated": false, "info": {}}}'

    class Villain(agar.ToolEnv):
        """Counts, until it is told to misbehave."""

        def __init__(self, *, fault="", at="step", note=""):
            super().__init__()
            self.fault, self.at, self.note = fault, at, note
            if at == "constructor":
                self.misbehave()

        async def areset(self, *, seed=None, options=None):
            await super().areset(seed=seed, options=options)
            self.count = int(self.np_random.integers(0, 100))
            self.thread = threading.get_ident()
            if self.at == "reset":
                return self.misbehave() or ("hello", {})
            task = (options or {}).get("task")
            return f"count {self.count}{f' of {task.key}' if task else ''}", {"pid": os.getpid()}

        @agar.tool
        def add(self, amount: int) -> str:
            """Add to the count."""
            self.count += amount
            return str(self.count)

        async def answer(self, action):
            if action.text.startswith("now"):
                self.fault = action.text.removeprefix("now ") if " " in action.text else self.fault
            done = self.misbehave() if action.text.startswith("now") else None
            return done or (f"count {self.count}", 0.5, action.text == "end", False, {"reward_parts": {"half": 0.5}})

        def gold(self):
            assert threading.get_ident() == self.thread
            return agar.Turn(text=str(self.count))

        def misbehave(self):
            match self.fault:
                case "exit": os._exit(3)
                case "abort": os.abort()
                case "patricide": os.kill(os.getppid(), 9); time.sleep(600)
                case "orphan" | "orphan, stopped":
                    code = "import os, time; os.closerange(3, 256); time.sleep(600)"
                    child = [sys.executable, "-S", "-c", code]
                    started = f"subprocess.Popen({child!r}, start_new_session=True, stdout=subprocess.DEVNULL)"
                    script = f"import subprocess; print({started}.pid)"
                    pid = subprocess.check_output([sys.executable, "-S", "-c", script], text=True)
                    open(self.note, "w").write(pid)
                    os.kill(os.getppid(), 9 if self.fault == "orphan" else 19)
                    time.sleep(600)
                case "forged":
                    for fd in range(3, 64):
                        try: os.write(fd, len(FORGED).to_bytes(8) + FORGED)
                        except OSError: pass
                case "hang": time.sleep(600)
                case "spin":
                    while True: pass
                case "memory":
                    held = []
                    while True: held.append(bytearray(32 << 20))
                case "huge": return "x" * 100_000_000, 0.0, False, False, {}
                case "huge info": return "", 0.0, False, False, {"x": "x" * 5_000_000}
                case "nan": return "", float("nan"), False, False, {}
                case "word": return "", "a lot", False, False, {}
                case "truth": return "", 0.0, "yes", False, {}
                case "number": return 7, 0.0, False, False, {}
                case "set": return "", 0.0, False, False, {"x": {1}}
                case "sandbox": raise SandboxError("the box is gone")
                case "raise": raise KeyError("lost")
                case "system exit": raise SystemExit(1)
                case "unreadable":
                    class Unreadable(Exception):
                        def __str__(self): raise ValueError
                    raise Unreadable
                case "close": os.closerange(3, 256); time.sleep(600)
                case "garbage":
                    for fd in range(3, 64):
                        try: os.write(fd, (3).to_bytes(8) + b"}{!")
                        except OSError: pass
                    time.sleep(600)
                case "slow start":
                    with open(self.note, "w") as file:
                        file.write(str(os.getpid()))
                    time.sleep(1)
                case "children":
                    code = "import time; time.sleep(600)"
                    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
                    open(self.note, "w").write(str(child.pid))
                    os._exit(0)

    agar.register("Villain-v0", Villain, max_turns=8, isolation="process")
''')


@pytest.fixture
def villain(tmp_path, monkeypatch):
    """The id of an environment in a process of its own that misbehaves as its `fault` says."""
    (tmp_path / "villains.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "villains:Villain-v0"
    import sys

    sys.modules.pop("villains", None)
