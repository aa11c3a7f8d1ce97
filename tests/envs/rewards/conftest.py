"""A conversation of one question and one reply; a real HTTP server for rewards from a service."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agar.envs.rubric import Conversation
from agar.types import Message, TaskRow


@pytest.fixture
def told():
    """Makes a conversation from a reply and what the task's payload holds."""

    def make(reply, **payload):
        messages = (Message(role="user", content="?"), Message(role="assistant", content=reply))
        return Conversation(task=TaskRow(key="k", prompt="?", payload=payload), messages=messages)

    return make


@pytest.fixture
def serving(monkeypatch):
    """Serves `answer(path, body, headers) -> (status, JSON value or bytes)` on this machine; retries do not wait."""
    monkeypatch.setattr("agar.envs.rewards.http._BACKOFF_S", 0.0)

    @contextmanager
    def serve(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, value = answer(self.path, body, self.headers)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(timeout=10)

    return serve
