"""Rules on the ends of sessions, on strangers, and on what leaves no trace."""

import copy
import json

from hypothesis import strategies as st
from hypothesis.stateful import precondition
from unruly.clients import JSON, SPOKEN, Clients, step
from unruly.dialects import Messages
from unruly.session import Sent


class Ends(Clients):
    """What must not reach a record."""

    @precondition(lambda self: len(self.open) > 1)
    @step(data=st.data())
    def seal_a_session(self, data):
        """With whatever is under way: those calls get no reply, and nothing of the session is trained."""
        self.seal(data.draw(st.sampled_from(self.open)))

    @precondition(lambda self: len(self.open) < len(self.sessions))
    @step(data=st.data(), dialect=SPOKEN, stream=st.booleans())
    def call_after_the_seal(self, data, dialect, stream):
        played = data.draw(st.sampled_from([played for played in self.sessions if played.sealed is not None]))
        sent = self.request(played.threads[0], dialect, stream=stream)
        calls = self.world.calls
        status, raw = self.run(self.post(played, sent))
        assert (status, self.world.calls) == (401, calls)
        assert sent.dialect.error(json.loads(raw))
        assert played.session.id.encode() not in raw
        self.touched.add(played)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), key=st.sampled_from(["", "agar-", "guess", "\u00e9", "a" * 5000]), dialect=SPOKEN)
    def knock_with_a_wrong_key(self, data, key, dialect):
        sent = self.request(data.draw(st.sampled_from(self.threads)), dialect, stream=False)

        async def knock() -> int:
            headers = {"authorization": f"Bearer {key}"} | JSON
            async with self.world.http.post(self.world.url + dialect.path, data=sent.body, headers=headers) as reply:
                return reply.status

        calls = self.world.calls
        assert (self.run(knock()), self.world.calls) == (401, calls)

    @precondition(lambda self: self.open)
    @step(
        data=st.data(),
        body=st.sampled_from([b"", b"{", b"[]", b"\xff", b"{}", b'{"messages":[],"input":[]}', b'{"messages":1}']),
        dialect=SPOKEN,
    )
    def send_garbage(self, data, body, dialect):
        played = data.draw(st.sampled_from(self.open))
        sent = Sent(dialect=dialect, body=body, stream=False, history=[], tail=None)
        status, raw = self.run(self.post(played, sent))
        assert status == 400
        assert dialect.error(json.loads(raw))
        self.touched.add(played)

    @precondition(lambda self: self.countable)
    @step(data=st.data())
    def count_tokens(self, data):
        """It says how long the prompt will be, and leaves no trace."""
        thread = data.draw(st.sampled_from(self.countable))
        played = thread.played
        body = json.dumps(Messages.body({"messages": copy.deepcopy(thread.history)})).encode()
        url = f"{played.session.path_url}/messages/count_tokens"

        async def count() -> int:
            async with self.world.http.post(url, data=body, headers=JSON) as reply:
                assert reply.status == 200
                return int((await reply.json())["input_tokens"])

        nodes, calls = len(played.nodes), self.world.calls
        counted = self.run(count())
        assert (len(played.nodes), self.world.calls) == (nodes, calls)
        sent = self.ask(thread, Messages, stream=False)
        if sent.said is not None and sent.said.node is not None and self.world.calls > calls:
            assert sent.said.prompt_tokens == counted
