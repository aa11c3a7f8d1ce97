import asyncio
from dataclasses import replace

import httpx
import pytest

from agar.errors import ConfigError, DeadlineError, EngineAborted, EngineError, SessionClosedError
from agar.ledger.config import RecordPolicy
from agar.rollout.gateway.budget import Budget
from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Finish, Message, Sampled, Sampling, SessionAccess, ToolSpec

ASK = Message(role="user", content="Start.")
SH = ToolSpec(name="sh", description="Run.")


def result(call):
    return Message(role="tool", content="box 83", tool_call_id=call.id)


async def test_a_session_gives_what_an_agent_needs(gateway, sampling):
    session: SessionAccess = gateway.open(policy="main", sampling=sampling)
    assert session.base_url == gateway.base_url
    assert session.base_url.endswith("/v1")
    assert session.env()["OPENAI_API_KEY"] == session.env()["ANTHROPIC_AUTH_TOKEN"] == session.id
    assert session.env()["OPENAI_BASE_URL"] == session.env()["ANTHROPIC_BASE_URL"] + "/v1" == session.base_url
    elsewhere = session.env(base_url="http://127.0.0.1:8400/v1")
    assert elsewhere["OPENAI_BASE_URL"] == "http://127.0.0.1:8400/v1"
    assert elsewhere["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8400"
    assert elsewhere["OPENAI_API_KEY"] == session.id
    assert len(session.id) > 40
    assert session.id != gateway.open(policy="main", sampling=sampling).id


async def test_two_turns_over_the_direct_chat_make_one_path(gateway, engine, family, sampling):
    session = gateway.open(policy="main", sampling=sampling)
    turn = await session.chat([ASK], tools=[SH])
    assert [c.arguments for c in turn.tool_calls] == [{"command": "cat 47"}]
    assert session.last_node == 0
    last = await session.chat([ASK, turn.message(), result(turn.tool_calls[0])], tools=[SH])
    assert (last.text, last.finish) == ("gold", Finish.STOP)
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert (sealed.divergences, sealed.open_calls) == ((), 0)
    before = [*engine.prompts[0].tolist(), *sealed.nodes[0].sampled.token_ids.tolist()]
    assert engine.prompts[1].tolist()[: len(before)] == before


async def test_sampling_is_pinned_and_stop_tokens_are_the_familys(gateway, family, sampling):
    session = gateway.open(policy="main", sampling=sampling)
    reply = await session.call(
        ModelCall(messages=(ASK,), requested={"temperature": 0.1, "max_tokens": 64}, model="gpt")
    )
    assert reply.node.sampling.temperature == 1.0
    assert reply.node.sampling.stop_token_ids == family.stop_ids
    assert reply.node.requested == {"temperature": 0.1, "model": "gpt"}


async def test_call_ids_are_unique_in_a_session(gateway, sampling, scripted, family):
    session = gateway.open(policy="main", sampling=sampling)
    turn = await session.chat([ASK])
    other = gateway.open(policy="main", sampling=sampling)
    assert turn.tool_calls[0].id == "call_0_0"
    assert (await other.chat([ASK])).tool_calls == ()


async def test_turn_budget_ends_with_a_length_stop(gateway, sampling, engine):
    session = gateway.open(policy="main", sampling=sampling, max_turns=1)
    turn = await session.chat([ASK])
    stopped = await session.chat([ASK, turn.message(), ASK])
    assert (stopped.text, stopped.tool_calls, stopped.finish) == ("", (), Finish.LENGTH)
    sealed = session.seal()
    assert len(sealed.nodes) == len(engine.prompts) == 1
    assert sealed.budget_stops == {Budget.TURNS: 1}


async def test_token_budget_cuts_a_reply_and_then_stops(gateway, sampling):
    session = gateway.open(policy="main", sampling=sampling, max_tokens=5)
    turn = await session.chat([ASK])
    assert turn.finish is Finish.LENGTH
    assert (await session.chat([ASK, turn.message(), ASK])).finish is Finish.LENGTH
    sealed = session.seal()
    assert [len(node.sampled) for node in sealed.nodes] == [5]
    assert sealed.budget_stops == {Budget.TOKENS: 1}


async def test_context_budget_counts_prompt_and_reply(gateway, sampling, family):
    prompt = len(family.render([ASK]))
    session = gateway.open(policy="main", sampling=sampling, context_tokens=prompt + 3)
    assert len((await session.call(ModelCall(messages=(ASK,)))).node.sampled) == 3
    assert (await session.call(ModelCall(messages=(ASK, ASK)))).budget is Budget.CONTEXT


async def test_truncated_stop_ends_the_session_after_a_cut_reply(gateway):
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=2), record=RecordPolicy(truncated="stop"))
    turn = await session.chat([ASK])
    reply = await session.call(ModelCall(messages=(ASK, turn.message(), ASK)))
    assert reply.budget is Budget.TRUNCATED


async def test_an_identical_request_gets_the_stored_reply_until_it_is_built_upon(gateway, sampling, engine):
    session = gateway.open(policy="main", sampling=sampling)
    ask = ModelCall(messages=(ASK,), fingerprint=b"1")
    first = await session.call(ask)
    assert await session.call(ask) is first
    assert len(engine.prompts) == 1
    await session.call(ModelCall(messages=(ASK, first.turn.message(), ASK), fingerprint=b"2"))
    again = await session.call(ask)
    assert again is not first
    sealed = session.seal()
    assert sealed.repeats == 1
    assert [node.parent for node in sealed.nodes] == [None, 0, None]


class Stalling:
    """Waits until let go; counts calls."""

    def __init__(self, engine):
        self.engine, self.go, self.calls = engine, asyncio.Event(), 0

    async def generate(self, ids, sampling, *, routing_key):
        self.calls += 1
        await self.go.wait()
        return await self.engine.generate(ids, sampling, routing_key=routing_key)


@pytest.fixture
async def stalling(family, engine):
    slow = Stalling(engine)
    async with Gateway(engines={"main": slow}, families={"main": family}) as gateway:
        yield gateway, slow


async def test_an_identical_request_joins_the_one_under_way(stalling, sampling):
    gateway, slow = stalling
    session = gateway.open(policy="main", sampling=sampling)
    ask = ModelCall(messages=(ASK,), fingerprint=b"1")
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(session.call(ask)) for _ in range(3)]
        await asyncio.sleep(0)
        slow.go.set()
    assert len({id(call.result()) for call in calls}) == 1
    assert slow.calls == 1
    assert not session._open


async def test_a_reply_whose_caller_left_is_kept_for_its_retry(stalling, sampling):
    gateway, slow = stalling
    session = gateway.open(policy="main", sampling=sampling)
    ask = ModelCall(messages=(ASK,), fingerprint=b"1")
    caller = asyncio.create_task(session.call(ask))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    slow.go.set()
    await session.call(ask)
    assert slow.calls == 1
    assert len(session.seal().nodes) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_repeat_joins_a_call_in_its_callers_task_and_does_not_end_it(stalling, sampling, stream):
    gateway, slow = stalling
    session = gateway.open(policy="main", sampling=sampling)
    ask = ModelCall(messages=(ASK,), fingerprint=b"1")
    first = asyncio.create_task(session.call(ask, stays=True))
    await asyncio.sleep(0)
    leaving = asyncio.create_task(session.call(replace(ask, stream=stream)))
    joined = asyncio.create_task(session.call(ask, stays=True))
    await asyncio.sleep(0)
    assert [under_way.callers for under_way in session._open] == [3]
    leaving.cancel()
    await asyncio.wait({leaving})
    slow.go.set()
    assert await first is await joined
    assert (slow.calls, session.seal().repeats) == (1, 2)


async def test_a_failure_is_told_to_the_caller_in_whose_task_it_was_and_to_those_who_joined(family, sampling, engine):
    class Failing:
        async def generate(self, ids, sampling, *, routing_key):
            await asyncio.sleep(0.01)
            raise EngineError("gone")

    async with Gateway(engines={"main": Failing()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        ask = ModelCall(messages=(ASK,), fingerprint=b"1")
        calls = [asyncio.create_task(session.call(ask, stays=True)) for _ in range(3)]
        await asyncio.wait(calls)
        assert [str(call.exception()) for call in calls] == ["gone"] * 3
        assert not session._open
        assert not session._replies


@pytest.mark.parametrize("fingerprint", [None, b"1"])
@pytest.mark.parametrize("end", ["seal", "hang_up"])
async def test_the_task_of_a_caller_goes_on_after_its_call_is_given_up(stalling, sampling, fingerprint, end):
    gateway, slow = stalling
    session = gateway.open(policy="main", sampling=sampling)

    async def program():
        with pytest.raises(SessionClosedError, match="under way"):
            await session.call(ModelCall(messages=(ASK,), fingerprint=fingerprint), stays=True)
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await slow.go.wait()
        return asyncio.current_task().cancelling()

    task = asyncio.create_task(program())
    await asyncio.sleep(0)
    getattr(session, end)()
    await asyncio.sleep(0.01)
    assert session.seal().open_calls == (end == "seal")
    slow.go.set()
    assert await task == 0
    assert not session._open


@pytest.mark.parametrize("sooner", [False, True])
async def test_a_caller_that_is_cancelled_while_its_call_is_given_up_is_cancelled(stalling, sampling, sooner):
    gateway, _ = stalling
    session = gateway.open(policy="main", sampling=sampling)
    caller = asyncio.create_task(session.chat([ASK]))
    await asyncio.sleep(0)
    for end in (caller.cancel, session.hang_up) if sooner else (session.hang_up, caller.cancel):
        end()
    await asyncio.wait({caller})
    assert caller.cancelled()
    assert not session._open


async def test_those_who_joined_a_call_whose_task_is_cancelled_are_told_so(stalling, sampling):
    gateway, _ = stalling
    session = gateway.open(policy="main", sampling=sampling)
    ask = ModelCall(messages=(ASK,), fingerprint=b"1")
    first, joined = [asyncio.create_task(session.call(ask, stays=True)) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first, joined})
    assert first.cancelled()
    assert isinstance(joined.exception(), SessionClosedError)


async def test_a_call_that_seals_its_own_session_gets_no_reply_and_its_task_goes_on(family, sampling, engine):
    class Sealing:
        async def generate(self, ids, sampling, *, routing_key):
            session.seal()
            return await engine.generate(ids, sampling, routing_key=routing_key)

    async with Gateway(engines={"main": Sealing()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        with pytest.raises(SessionClosedError):
            await session.chat([ASK])
        await asyncio.sleep(0)
        assert (len(session.seal().nodes), session.seal().open_calls) == (0, 1)


async def test_a_cancelled_direct_call_is_given_up(stalling, sampling):
    gateway, _ = stalling
    session = gateway.open(policy="main", sampling=sampling)
    caller = asyncio.create_task(session.chat([ASK]))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    assert session.seal().open_calls == 0


async def test_sealing_cancels_what_is_under_way_and_says_so(stalling, sampling):
    gateway, slow = stalling
    session = gateway.open(policy="main", sampling=sampling)
    caller = asyncio.create_task(session.call(ModelCall(messages=(ASK,), fingerprint=b"1")))
    await asyncio.sleep(0.01)
    sealed = session.seal()
    slow.go.set()
    with pytest.raises(SessionClosedError):
        await caller
    assert (len(sealed.nodes), sealed.open_calls) == (0, 1)
    assert session.seal() is sealed
    with pytest.raises(SessionClosedError):
        await session.chat([ASK])


async def test_a_failed_call_leaves_no_node_and_its_turn_is_given_back(family, sampling, engine):
    class Failing:
        calls = 0

        async def generate(self, ids, sampling, *, routing_key):
            self.calls += 1
            if self.calls == 1:
                raise EngineError("gone")
            return await engine.generate(ids, sampling, routing_key=routing_key)

    async with Gateway(engines={"main": Failing()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling, max_turns=1)
        ask = ModelCall(messages=(ASK,), fingerprint=b"1")
        with pytest.raises(EngineError, match="gone"):
            await session.call(ask)
        assert (await session.call(ask)).budget is None
        assert len(session.seal().nodes) == 1


async def test_an_aborted_reply_is_recorded_and_not_answered(family, sampling):
    class Aborting:
        async def generate(self, ids, sampling, *, routing_key):
            return Sampled.restore(token_ids=[50], logprobs=[-1.0], policy_versions=[0], finish=Finish.ABORT)

    async with Gateway(engines={"main": Aborting()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        with pytest.raises(EngineAborted):
            await session.chat([ASK])
        assert session.last_node is None
        assert [node.sampled.finish for node in session.seal().nodes] == [Finish.ABORT]


@pytest.mark.parametrize("replies", [1, 2])
async def test_a_call_whose_reply_was_aborted_takes_no_turn(family, engine, sampling, replies):
    class AbortingOnce:
        aborted = False

        async def generate(self, ids, sampling, *, routing_key):
            if self.aborted:
                return await engine.generate(ids, sampling, routing_key=routing_key)
            self.aborted = True
            return Sampled.restore(token_ids=[50], logprobs=[-1.0], policy_versions=[0], finish=Finish.ABORT)

    async with Gateway(engines={"main": AbortingOnce()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling, max_turns=1)
        ask = ModelCall(messages=(ASK,), n=replies)
        with pytest.raises(EngineAborted):
            await session.call(ask)
        assert (await session.call(ask)).budget is None
        assert (await session.call(ask)).budget is Budget.TURNS
        assert len(session.seal().nodes) == 2 * replies


async def test_a_silent_engine_is_a_deadline_that_names_what_it_waited_for(family, engine, sampling):
    config = GatewayConfig(call_timeout_s=0.02)
    async with Gateway(engines={"main": Stalling(engine)}, families={"main": family}, config=config) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        with pytest.raises(DeadlineError, match="policy 'main'"):
            await session.chat([ASK])


async def test_versions_are_kept_per_token(family, sampling, scripted):
    class Swapping:
        """Half a reply on the old weights, half on the new."""

        async def generate(self, ids, sampling, *, routing_key):
            versions = [(4, 50), (5, 51)]
            pieces = [
                Sampled.restore(token_ids=[t], logprobs=[-1.0], policy_versions=[v], finish=Finish.STOP)
                for v, t in versions
            ]
            return Sampled.join(pieces)

    async with Gateway(engines={"main": Swapping()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        await session.chat([ASK])
        assert session.seal().nodes[0].sampled.policy_versions.tolist() == [4, 5]


async def test_the_routing_key_is_stable_and_is_not_the_session_key(family, engine, sampling):
    seen = []

    class Watching:
        async def generate(self, ids, sampling, *, routing_key):
            seen.append(routing_key)
            return await engine.generate(ids, sampling, routing_key=routing_key)

    async with Gateway(engines={"main": Watching()}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        await session.chat([ASK])
        await session.chat([ASK, ASK])
        assert len(set(seen)) == 1
        assert session.id not in seen[0]
        assert seen[0] not in session.id


@pytest.mark.parametrize("fields", [{"policy": "other"}, {"max_turns": 0}, {"max_tokens": -1}])
async def test_opening_with_a_bad_argument_is_refused(gateway, sampling, fields):
    with pytest.raises(ConfigError):
        gateway.open(**({"policy": "main", "sampling": sampling} | fields))


async def test_the_latest_failure_is_told_until_a_call_gets_its_reply(family, sampling, engine):
    class Sometimes:
        fails = False

        async def generate(self, ids, sampling, *, routing_key):
            if self.fails:
                raise EngineError("nobody is there")
            return await engine.generate(ids, sampling, routing_key=routing_key)

    sometimes = Sometimes()
    async with Gateway(engines={"main": sometimes}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=sampling)
        await session.chat([ASK])
        assert (session.replies, session.failure) == (1, None)
        sometimes.fails = True
        with pytest.raises(EngineError):
            await session.chat([ASK])
        assert isinstance(session.failure, EngineError)
        sometimes.fails = False
        await session.chat([ASK])
        assert (session.replies, session.failure) == (2, None)


async def test_calls_that_are_hung_up_on_do_not_quarantine(stalling, sampling):
    gateway, _ = stalling
    session = gateway.open(policy="main", sampling=sampling)
    waiting = asyncio.create_task(session.call(ModelCall(messages=(ASK,), fingerprint=b"1")))
    await asyncio.sleep(0.01)
    session.hang_up()
    assert session.seal().open_calls == 0
    with pytest.raises(SessionClosedError):
        await waiting


async def test_an_equal_call_after_hanging_up_is_no_retry(gateway, sampling, engine):
    session = gateway.open(policy="main", sampling=sampling)
    ask = ModelCall(messages=(ASK,), fingerprint=b"1")
    await session.call(ask)
    session.hang_up()
    session.pick_up()
    await session.call(ask)
    assert len(engine.prompts) == len(session.seal().nodes) == 2


async def test_a_call_that_arrives_after_hanging_up_is_of_nobody(gateway, sampling, engine):
    session = gateway.open(policy="main", sampling=sampling)
    async with httpx.AsyncClient() as http:
        body = {"messages": [{"role": "user", "content": "Start."}]}
        session.hang_up()
        late = await http.post(f"{session.path_url}/chat/completions", json=body)
        assert (late.status_code, "has ended" in late.json()["error"]["message"]) == (401, True)
        session.pick_up()
        assert (await http.post(f"{session.path_url}/chat/completions", json=body)).status_code == 200
        session.hang_up()
    sealed = session.seal()
    assert (len(engine.prompts), len(sealed.nodes), sealed.open_calls) == (1, 1, 0)
