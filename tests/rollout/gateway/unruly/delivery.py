"""Rules on delivery: replies that are lost, asked for twice, waited for, or cut in the middle."""

import asyncio
import copy
import json

from hypothesis import strategies as st
from hypothesis.stateful import precondition
from unruly.clients import SPOKEN, TEXTS, Clients, Pending, Thread, step
from unruly.session import Sent
from unruly.world import until

from agar.rollout.gateway.session import GatewaySession


class Delivery(Clients):
    """What happens to calls on their way."""

    def hold(self, thread: Thread, sent: Sent, at: int) -> None:
        if self.is_under_way(thread.played, sent):
            return
        world = self.world

        async def ask() -> asyncio.Task[tuple[int, bytes]]:
            held, world.oracle.hold_at = world.held, at
            task = asyncio.get_running_loop().create_task(self.post(thread.played, sent))
            await until(lambda: task.done() or world.held > held, "the reply, or half of it")
            await world.let_others_pass()
            world.oracle.hold_at = None
            return task

        task = self.run(ask())
        if task.done():
            self.settle(thread, sent, *task.result())
        else:
            thread.busy = True
            self.pending.append(Pending(thread=thread, sent=sent, clients=[task]))

    def stale(self) -> None:
        """What was recorded has grown older."""
        self.touched |= {played for played in self.open if played.policy.max_staleness is not None}

    def finish_pending(self) -> None:
        """Every call under way ends; each client that is still there gets the same reply."""
        done, self.pending = self.pending, []
        for call in done:
            played, thread = call.thread.played, call.thread
            thread.busy = False
            self.touched.add(played)
            replies = [self.run(client) for client in call.clients]
            assert len(set(replies)) <= 1, "clients of one call got different replies"
            if replies:
                self.settle(thread, call.sent, *replies[0])
        tags = {call.thread.played.tag for call in done}
        self.run(until(lambda: not any(self.world.inside[tag] for tag in tags), "the end of every engine call"))

    @precondition(lambda self: self.bodies)
    @step(data=st.data())
    def retry(self, data):
        """The same body again: the same bytes and no call of an engine, until something is built upon the reply."""
        played, sent = data.draw(st.sampled_from(self.bodies))
        newest = [other for other in played.sent if other.question == sent.question][-1]
        built_upon = newest.said.node is None or any(node.parent == newest.said.node for node in played.nodes)
        calls, before = self.world.calls, len(played.nodes)
        status, raw = self.run(self.post(played, sent))
        self.touched.add(played)
        if status != 200:
            self.refused(played, sent, status, raw)
        elif self.world.calls == calls and len(played.nodes) == before and not built_upon:
            assert newest.said.id.encode() in raw, "a retry got another reply"
            assert sent.stream or newest.body != sent.body or raw == newest.raw, "a retry got other bytes"
        else:
            assert built_upon, "a retry was sampled anew although nothing was built upon its reply"
            again = copy.copy(sent)
            again.raw = raw
            again.said = sent.dialect.merge(raw.decode()) if sent.stream else sent.dialect.read(json.loads(raw))
            again.must = frozenset()
            self.judge.reply(played, again)
            played.sent.append(again)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN, stream=st.booleans(), again=st.booleans())
    def lose_a_reply(self, data, text, dialect, stream, again):
        """It never reaches the client, which asks the same again at once, or goes on from where it was, later."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        lost = self.ask(thread, dialect, stream=stream, lost=True)
        if again and lost.said is not None and lost.said.node is not None:
            calls = self.world.calls
            status, raw = self.run(self.post(thread.played, lost))
            assert (status, self.world.calls) == (200, calls)
            assert stream or raw == lost.raw
            first = lost.said
            self.settle(thread, lost, status, raw)
            assert (lost.said.id, lost.said.message) == (first.id, first.message)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), seed=st.integers(0, 2), dialect=SPOKEN, stream=st.booleans())
    def ask_for_a_better_reply(self, data, seed, dialect, stream):
        thread = data.draw(st.sampled_from(self.threads))
        if not thread.waits:
            thread.history.pop()
            thread.must.clear()
            thread.tail = None if thread.tail is None else thread.played.nodes[thread.tail].parent
        if thread.waits:
            self.ask(thread, dialect, stream=stream, seed=seed)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN, streams=st.tuples(st.booleans(), st.booleans()))
    def send_everything_twice(self, data, text, dialect, streams):
        """Two connections, one body at the same time; or one of them as a stream."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        before, calls = len(thread.played.nodes), self.world.calls
        pair = [self.request(thread, dialect, stream=stream) for stream in streams]
        if self.is_under_way(thread.played, pair[0]):
            return

        async def both() -> list[tuple[int, bytes]]:
            return list(await asyncio.gather(*(self.post(thread.played, sent) for sent in pair)))

        replies = self.run(both())
        assert len(thread.played.nodes) <= before + 1, "one question became two calls"
        assert self.world.calls <= calls + 1
        for sent, (status, raw), lost in zip(pair, replies, (True, False), strict=True):
            self.settle(thread, sent, status, raw, lost=lost)
        if all(sent.said is not None and sent.said.node is not None for sent in pair):
            assert pair[0].said.id == pair[1].said.id
            assert pair[0].said.message == pair[1].said.message, "a stream says something else than the whole reply"

    @precondition(lambda self: self.threads and len(self.pending) < 3)
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN, stream=st.booleans(), at=st.integers(0, 8))
    def begin_a_call_that_lasts(self, data, text, dialect, stream, at):
        """The engine holds the reply after some tokens, if it gets so far."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        self.hold(thread, self.request(thread, dialect, stream=stream), at)

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN, stream=st.booleans(), at=st.integers(0, 8))
    def publish_in_the_middle_of_a_call(self, data, text, dialect, stream, at):
        """Of this one and of those that were under way; or between calls, where it ends before it can be cut."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        self.hold(thread, self.request(thread, dialect, stream=stream), at)
        self.run(self.world.publish())
        self.finish_pending()
        self.stale()

    @precondition(lambda self: self.pending)
    @step()
    def publish_new_weights(self):
        """What runs is cut in the middle and goes on under the new weights."""
        self.run(self.world.publish())
        self.finish_pending()
        self.stale()

    @precondition(lambda self: self.pending)
    @step()
    def abort_what_runs(self):
        """Without new weights: the engine client asks again for the rest."""
        self.run(self.world.control.abort_all())
        self.finish_pending()

    @precondition(lambda self: any(call.clients for call in self.pending))
    @step(data=st.data())
    def leave_in_mid_call(self, data):
        """The client closes its connection: that ends a stream that nobody else waits for, and no other call."""
        call = data.draw(st.sampled_from([call for call in self.pending if call.clients]))
        client, played = call.clients.pop(), call.thread.played
        tag, nodes = played.tag, len(played.nodes)
        inside, waiting = self.world.inside[tag], _callers(played.session)
        self.run(_leave(client))
        self.touched.add(played)
        if call.sent.stream:
            left = lambda: _callers(played.session) == waiting - 1  # noqa: E731
            self.run(until(left, "the gateway's notice that a client of a stream has left"))
        if call.sent.stream and not call.clients:
            self.run(until(lambda: self.world.inside[tag] == inside - 1, "the end of a generation without a client"))
            self.pending.remove(call)
            call.thread.busy = False
            assert len(played.nodes) == nodes
        else:
            assert self.world.inside[tag] == inside

    @precondition(lambda self: self.pending)
    @step(data=st.data())
    def join_a_call_under_way(self, data):
        """The same body from another connection waits for the same reply."""
        call = data.draw(st.sampled_from(self.pending))
        session = call.thread.played.session

        async def join() -> None:
            waiting = _callers(session)
            call.clients.append(asyncio.get_running_loop().create_task(self.post(call.thread.played, call.sent)))
            await until(lambda: _callers(session) == waiting + 1, "a second caller of a call under way")

        calls = self.world.calls
        self.run(join())
        assert self.world.calls == calls, "a call under way was asked of the engine again"

    @precondition(lambda self: self.threads)
    @step(data=st.data(), text=TEXTS, dialect=SPOKEN, stream=st.booleans(), fatal=st.booleans())
    def let_the_engine_fail(self, data, text, dialect, stream, fatal):
        """Once, and the engine client asks again; or for good, and the caller is told to."""
        thread = data.draw(st.sampled_from(self.threads))
        self.go_on(data, thread, text)
        sent, calls, nodes = self.request(thread, dialect, stream=stream), self.world.calls, len(thread.played.nodes)
        if self.is_under_way(thread.played, sent):
            return
        self.world.engine.fail("error", count=2 if fatal else 1)
        status, raw = self.run(self.post(thread.played, sent))
        reached = self.world.calls > calls
        self.world.engine.faults = type(self.world.engine.faults)()
        self.touched.add(thread.played)
        if fatal and reached:
            assert status == 502
            assert sent.dialect.error(json.loads(raw))
            assert len(thread.played.nodes) == nodes
        else:
            self.settle(thread, sent, status, raw)


async def _leave(client: asyncio.Task[tuple[int, bytes]]) -> None:
    client.cancel()
    await asyncio.wait({client})


def _callers(session: GatewaySession) -> int:
    """Who waits for a call of a session that is under way."""
    return sum([under_way.callers for under_way in session._open])
