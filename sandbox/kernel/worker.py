"""The program inside the sandbox: a supervisor, and the interpreter that runs the cells.

Standard library only, sent as the text of `python3 -c`, so that any Python from 3.8 on will do and nothing has to be
installed. Two processes, because a cell may do anything to its own:

- The *supervisor* talks to the host (frames on standard input and output), gathers what the cells write (by a pipe, so
  that output of subprocesses and of C code is there too, in order), keeps its beginning and its end, and starts a new
  interpreter where one was killed or has crashed.
- The *interpreter* has no thread but the one that runs cells, so that a cell may fork, and an interrupt is an ordinary
  SIGINT that raises KeyboardInterrupt and leaves the variables alone.

A frame is its length in four bytes, most significant first, and as many bytes of JSON. What a cell forges is told to
the agent that wrote it, and to nobody else.
"""

from __future__ import annotations

import _ast
import builtins
import json
import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what takes long to import, and is not needed before something has gone wrong, is imported there
    from typing import Any

FRAME_BYTES = 16 << 20
CHUNK_BYTES = 1 << 16
RICH = {  # method of an object to the type of what it gives
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
}


class Link:
    """Frames over one descriptor to read and one to write."""

    def __init__(self, reader: int, writer: int) -> None:
        """Nothing has come yet."""
        self.reader, self.writer, self.buffer = reader, writer, b""

    def receive(self) -> dict[str, Any] | None:
        """One frame as an object; None where the other side has gone or sends nonsense."""
        while True:
            if len(self.buffer) >= 4:
                end = 4 + int.from_bytes(self.buffer[:4], "big")
                if end > FRAME_BYTES:
                    return None
                if len(self.buffer) >= end:
                    body, self.buffer = self.buffer[4:end], self.buffer[end:]
                    break
            try:
                piece = os.read(self.reader, CHUNK_BYTES)
            except OSError:
                return None
            if not piece:
                return None
            self.buffer += piece
        try:
            message = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    def send(self, message: dict[str, Any]) -> None:
        """One frame."""
        body = json.dumps(message).encode("ascii")
        data = memoryview(len(body).to_bytes(4, "big") + body)
        while data:
            data = data[os.write(self.writer, data) :]

    def close(self) -> None:
        """Hang up."""
        for fd in {self.reader, self.writer}:
            os.close(fd)


class Kept:
    """Output of which the beginning and the end are kept."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self.limit, self.head, self.tail, self.size = 1 << 16, b"", b"", 0

    def add(self, data: bytes) -> None:
        """Take more."""
        self.size += len(data)
        room = self.limit // 2 - len(self.head)
        if room > 0:
            self.head, data = self.head + data[:room], data[room:]
        if data:
            self.tail = (self.tail + data)[-(self.limit - self.limit // 2) :]

    def take(self) -> tuple[str, int]:
        """The text, and how many bytes were left out of its middle; then begin anew."""
        cut = self.size - len(self.head) - len(self.tail)
        head, tail = self.head, self.tail
        self.head, self.tail, self.size = b"", b"", 0
        if not cut:
            return (head + tail).decode("utf-8", "replace"), 0
        notice = f"\n[... {cut} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + notice + tail.decode("utf-8", "replace"), cut


class Supervisor:
    """The process that the host talks to."""

    def __init__(self) -> None:
        """Take standard input and output for the host alone."""
        self.host = Link(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(nothing, fd)
        self.capture, self.writer = os.pipe()
        os.set_blocking(self.capture, False)
        self.kept = Kept()
        self.pid = -1
        self.link = self.host  # until there is an interpreter
        self.cell: int | None = None
        self.lost = False

    def run(self) -> None:
        """Serve until the host has gone."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.begin()
        self.host.send({"ready": list(sys.version_info[:3])})
        while True:
            # Requests are read one at a time, and the host sends no second one before it has seen the end of the first,
            # except to end it: so nothing can wait in a buffer where select does not see it, but for one such word.
            fds = [self.host.reader, self.link.reader, self.capture]
            for fd in [self.host.reader] if self.host.buffer else select.select(fds, [], [])[0]:
                if fd == self.host.reader:
                    request = self.host.receive()
                    if request is None:
                        os.kill(self.pid, signal.SIGKILL)
                        return
                    self.on_request(request)
                elif fd == self.link.reader:
                    self.on_reply(self.link.receive())
                    break  # the link may be another one now
                else:
                    self.gather()

    def begin(self) -> None:
        """Start an interpreter."""
        requests, ours = os.pipe()
        theirs, replies = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.host.close()
            for fd in (ours, theirs, self.capture):
                os.close(fd)
            for fd in (1, 2):
                os.dup2(self.writer, fd)
            os.close(self.writer)
            interpret(Link(requests, replies))
            os._exit(0)
        os.close(requests)
        os.close(replies)
        self.link = Link(theirs, ours)

    def on_request(self, request: dict[str, Any]) -> None:
        """Run a cell, or end the one that runs."""
        if request["do"] == "run":
            self.cell, self.kept.limit = request["cell"], request["limit"]
            try:
                self.link.send(request)
            except OSError:
                return  # it has died: its end of the link says so
        elif request["cell"] == self.cell:
            os.kill(self.pid, signal.SIGINT if request["do"] == "interrupt" else signal.SIGKILL)

    def on_reply(self, reply: dict[str, Any] | None) -> None:
        """Pass on what the interpreter says of a cell; start another one where it has died or says nonsense."""
        died = False
        if reply is None:
            died = True
            os.kill(self.pid, signal.SIGKILL)
            status = os.waitpid(self.pid, 0)[1]
            self.link.close()
            self.begin()
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            reply = {"status": "died", "signal": number, "code": None if number else os.WEXITSTATUS(status)}
        if self.cell is None:  # between cells: the next one hears of it
            self.lost = self.lost or died
            return
        for _ in range(4):  # a pipe holds less; what a process writes that was left behind has no end
            self.gather()
        reply["cell"], reply["lost"] = self.cell, self.lost
        reply["output"], reply["cut"] = self.kept.take()
        self.cell, self.lost = None, False
        self.host.send(reply)

    def gather(self) -> None:
        """Take what has been written."""
        try:
            self.kept.add(os.read(self.capture, CHUNK_BYTES))
        except BlockingIOError:
            return


class Interpreter:
    """Runs cells in one namespace."""

    def __init__(self) -> None:
        """Be `__main__`, so that classes of a cell can be pickled."""
        self.module = type(sys)("__main__")
        self.names = self.module.__dict__
        sys.modules["__main__"] = self.module
        self.names["display"] = self.display
        setattr(builtins, "display", self.display)  # noqa: B010  # no type checker knows it
        self.shown: list[dict[str, str | None]] = []
        self.room = 0
        self.running = False
        self.sources: dict[str, str] = {}

    def on_interrupt(self, number: int, frame: Any) -> None:
        """SIGINT: ends a cell, and nothing else."""
        if self.running:
            raise KeyboardInterrupt

    def run(self, code: str, number: int, limit: int) -> dict[str, Any]:
        """One cell; what is said of it."""
        self.shown, self.room = [], limit
        name = f"<cell {number}>"
        self.sources[name] = code
        reply: dict[str, Any] = {"status": "ok", "error": None}
        try:
            self.running = True
            tree: Any = compile(code, name, "exec", _ast.PyCF_ONLY_AST)
            last = tree.body[-1] if tree.body else None
            if isinstance(last, _ast.Expr):
                tree.body.pop()
            exec(compile(tree, name, "exec"), self.names)
            if isinstance(last, _ast.Expr):
                value = eval(compile(_ast.Expression(last.value), name, "eval"), self.names)
                if value is not None and not code.rstrip().endswith(";"):
                    self.names["_"] = value
                    self.display(value)
            self.figures()
            self.flush()
            self.running = False
        except KeyboardInterrupt as error:
            self.running = False
            reply = {"status": "interrupted", "error": self.told(error, limit)}
        except BaseException as error:
            self.running = False
            reply = {"status": "error", "error": self.told(error, limit)}
        self.flush()
        reply["shown"] = self.shown
        return reply

    def display(self, value: object) -> None:
        """Show a value as well as it can be."""
        forms: dict[str, str | bytes] = {"text/plain": repr(value)}
        for method, kind in RICH.items():
            made = getattr(type(value), method, None)
            if made is not None:
                try:
                    data = made(value)
                except Exception:
                    continue
                if data is not None:
                    forms[kind] = data if isinstance(data, (str, bytes)) else json.dumps(data)
        self.show(forms)

    def show(self, forms: dict[str, str | bytes]) -> None:
        """Keep what fits."""
        kept: dict[str, str | None] = {}
        for kind, data in forms.items():
            text = encoded(data) if isinstance(data, bytes) else data
            surplus = len(text) - self.room
            if surplus <= 0:
                kept[kind] = text
            elif kind == "text/plain":
                kept[kind] = f"{text[: self.room]}[... {surplus} characters left out]"
            else:
                kept[kind] = None
            self.room = max(self.room - len(kept[kind] or ""), 0)
        self.shown.append(kept)

    def figures(self) -> None:
        """Show what has been drawn with matplotlib, as a notebook does."""
        plot = sys.modules.get("matplotlib.pyplot")
        if plot is None:
            return
        import io

        for number in plot.get_fignums():
            picture = io.BytesIO()
            plot.figure(number).savefig(picture, format="png")
            self.show({"text/plain": repr(plot.figure(number)), "image/png": picture.getvalue()})
        plot.close("all")

    def flush(self) -> None:
        """Send on what Python itself holds back."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                continue

    def told(self, error: BaseException, limit: int) -> str:
        """A traceback without our own frames; only its end where it is long."""
        import linecache
        import traceback

        for name, code in self.sources.items():
            linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
            trace = trace.tb_next
        try:
            whole = traceback.TracebackException(type(error), error, trace)
            frames = [frame for frame in whole.stack if frame.name != "on_interrupt"]
            whole.stack = traceback.StackSummary.from_list(frames)
            text = "".join(whole.format())
        except BaseException as worse:
            text = f"{type(error).__name__}, whose text cannot be made: {type(worse).__name__}"
        left_out = len(text) - limit
        return text if left_out <= 0 else f"[... {left_out} characters left out]\n{text[-limit:]}"


def encoded(data: bytes) -> str:
    """Bytes in base64."""
    import base64

    return base64.b64encode(data).decode()


def interpret(link: Link) -> None:
    """Serve the supervisor until it has gone."""
    sys.stdout, sys.stderr = (
        open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for fd in (1, 2)
    )
    sys.argv, sys.path[:1] = [""], [""]
    interpreter, mine = Interpreter(), os.getpid()
    signal.signal(signal.SIGINT, interpreter.on_interrupt)
    while True:
        request = link.receive()
        if request is None:
            return
        try:
            reply = interpreter.run(request["code"], request["cell"], request["limit"])
        except KeyboardInterrupt as error:  # it came as the cell ended, or failed
            interpreter.running = False
            reply = {
                "status": "interrupted",
                "error": interpreter.told(error, request["limit"]),
                "shown": interpreter.shown,
            }
        if os.getpid() != mine:  # a child that the cell has forked: it has run to the cell's end, and goes no further
            os._exit(0)
        link.send(reply)


if __name__ == "__main__":
    Supervisor().run()
