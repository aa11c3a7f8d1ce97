"""A recipe's tasks, rubric and curriculum meet in real rollouts; only the engine says random words."""

import json
import sys
from datetime import date
from types import SimpleNamespace

import pytest
from gymnasium.wrappers import OrderEnforcing
from tests.ledger.families.conftest import HERE, TOKENS, write_model

import agar
from agar.cli.main import main
from agar.config import resolve
from agar.envs import Criterion, GradedEnv, Rubric, as_async
from agar.envs.library.hunt import Hunt, open_box
from agar.envs.wrappers.base import Wrapper
from agar.errors import EngineRefused
from agar.ledger.families import family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.ledger.trace import load_traces
from agar.recipe.config import LedgerConfig, Recipe
from agar.recipe.players import context_tokens, family_of, make_env, playing
from agar.rollout.gateway.budget import Budget
from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.server import Gateway
from agar.sandbox.pools import SandboxPools
from agar.types import Message, Outcome, Sampling

pytest.importorskip("uvicorn")

MODULE = """
from agar.envs import Criterion, Rubric
from agar.envs.rewards import length
from agar.envs.tasks import Levels


def brief(told):
    return len(told.reply) / 1000


def longest(group):
    best = max(len(told.reply) for told in group)
    return [float(len(told.reply) == best) for told in group]


def boom(told):
    raise KeyError("grader")


rubric = Rubric([
    Criterion(name="size", score=brief, weight=0.0),
    Criterion(name="short", score=length(most=1000), weight=0.5),
    Criterion(name="longest", score=longest, weight=2.0, stage="group"),
])
broken = Rubric([Criterion(name="it", score=boom)])


def levels():
    return Levels(window=1, threshold=0.0)
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch, write_servable_model):
    model = write_servable_model(tmp_path / "model")
    (tmp_path / "my_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    rows = [{"question": f"{n} + {n}?", "answer": 2 * n, "level": n // 3} for n in range(9)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "recipe.toml"
    path.write_text(f"""
[run]
dir = "{tmp_path / "runs"}"
[policies.main]
model = "{model}"
[engines]
backend = "fake"
router = "none"
[rollout]
group_size = 3
sampling = {{ max_tokens = 16 }}
[[tasks]]
env = "agar.envs.library.question:Question-v0"
path = "{tmp_path}/sums.jsonl@[:6]"
columns = {{ prompt = "question" }}
kwargs = {{ rubric = "my_rewards:rubric" }}
curriculum = "my_rewards:levels"
[[evaluate]]
env = "Question-v0"
path = "{tmp_path}/sums.jsonl@[6:]"
columns = {{ prompt = "question" }}
sampling = {{ max_tokens = 16 }}
""")
    return path


def traces_of(recipe, name):
    (folder,) = (recipe.parent / "runs").iterdir()
    (file,) = (folder / "traces").glob(f"{name}*.jsonl")
    return list(load_traces(file))


def test_questions_of_a_file_are_graded_alone_and_in_groups(recipe):
    assert main(["rollout", str(recipe), "--groups", "4"]) == 0
    traces = traces_of(recipe, "rollouts")
    assert len(traces) == 12
    by_group = {}
    for trace in traces:
        assert trace.task.prompt == f"{trace.task.payload['answer'] // 2} + {trace.task.payload['answer'] // 2}?"
        assert trace.nodes[0].messages[-1].text == trace.task.prompt
        parts = trace.reward.parts
        assert set(parts) == {"size", "short", "longest"}
        assert trace.reward.total == 0.5 * parts["short"] + 2.0 * parts["longest"]
        assert sum(trace.turn_rewards.values()) == pytest.approx(trace.reward.total)
        by_group.setdefault(trace.group.ordinal, []).append(parts)
    for group in by_group.values():
        assert max(parts["longest"] for parts in group) == 1.0
        assert {parts["longest"] for parts in group if parts["size"] < max(p["size"] for p in group)} <= {0.0}
    first = [trace.task.payload["level"] for trace in traces if trace.group.ordinal == 0]
    assert set(first) == {0}  # the curriculum begins with the lowest level


def test_an_evaluation_takes_its_part_of_the_file(recipe):
    assert main(["eval", str(recipe)]) == 0
    assert sorted(trace.task.key for trace in traces_of(recipe, "eval")) == ["sums/6", "sums/7", "sums/8"]


def test_an_evaluation_compares_the_attempts_at_a_task_as_training_does(recipe):
    words = ['evaluate.0.kwargs.rubric="my_rewards:rubric"', "evaluate.0.attempts=3"]
    assert main(["eval", str(recipe), *words]) == 0
    by_task = {}
    for trace in traces_of(recipe, "eval"):
        parts = trace.reward.parts
        assert trace.reward.total == 0.5 * parts["short"] + 2.0 * parts["longest"]
        by_task.setdefault(trace.task.key, []).append(parts)
    assert sorted(by_task) == ["sums/6", "sums/7", "sums/8"]
    for group in by_task.values():
        most = max(parts["size"] for parts in group)
        assert [parts["longest"] for parts in group] == [float(parts["size"] == most) for parts in group]


def test_a_rubric_that_raises_is_an_env_error_and_no_0(recipe):
    words = ["--groups", "1", 'tasks.0.kwargs.rubric="my_rewards:broken"', "rollout.max_replacements=0"]
    assert main(["rollout", str(recipe), *words, "rollout.attempt_retries=0"]) != 0
    (folder,) = (recipe.parent / "runs").iterdir()
    for file in (folder / "traces").glob("*.jsonl") if (folder / "traces").is_dir() else ():
        assert {trace.outcome for trace in load_traces(file)} <= {Outcome.ENV_ERROR}


def test_a_rubric_that_is_not_there_is_said_before_anything_starts(recipe, capsys):
    assert main(["rollout", str(recipe), 'tasks.0.kwargs.rubric="my_rewards:none"']) == 2
    assert "tasks.0.kwargs: rubric = 'my_rewards:none' cannot be found" in capsys.readouterr().err


@pytest.mark.parametrize(("thinking", "end"), [(None, "assistant\n"), (False, "</think>\n\n")])
def test_the_switch_for_reasoning_reaches_the_models_family(tmp_path, thinking, end):
    template = (HERE / "templates" / "qwen3.jinja").read_text("utf-8")
    model = write_model(tmp_path / "model", template, TOKENS["qwen3"])
    ledger = LedgerConfig.model_validate({"thinking": thinking})
    recipe = SimpleNamespace(policies={"main": SimpleNamespace(model=model)}, ledger=ledger)
    assert family_of(recipe, "main").opening.endswith(end)


async def test_engines_of_several_policies_are_numbered_on_so_that_they_share_no_device(tmp_path, write_servable_model):
    model = write_servable_model(tmp_path / "model")
    words = [f"policies.{name}.model={model}" for name in ("a", "b")]
    words += ["engines.backend=fake", "engines.router=none"]
    async with playing(resolve(Recipe, overrides=words).config, logs=tmp_path) as players:
        found = {name: [engine.index for engine in pool.engines] for name, pool in players.pools.items()}
    assert found == {"a": [0], "b": [1]}


async def test_environments_lease_their_sandboxes_from_the_run():
    async with SandboxPools() as pools:
        env = as_async(make_env(pools, "Hunt-v0", {"sandbox": {"backend": "fake"}}))
        await env.areset(seed=1)
        await env.env.unwrapped.sb.write("f", "x")
        assert pools.metrics()["sandbox/leased"] == 1
        await env.aclose()
        assert pools.metrics()["sandbox/leased"] == 0


@pytest.mark.parametrize(("wrapper", "leases"), [(Wrapper, 1), (OrderEnforcing, 0)])
async def test_an_environment_that_a_rubric_grades_leases_its_sandboxes_too(wrapper, leases):
    rubric = Rubric([Criterion(name="one", score=lambda told: 1.0)])
    agar.register("GradedHunt-v0", lambda: GradedEnv(wrapper(Hunt(sandbox={"backend": "fake"})), rubric))
    async with SandboxPools() as pools:
        env = as_async(make_env(pools, "GradedHunt-v0", {}))
        await env.areset(seed=1)
        await env.astep(open_box(10, call=0))
        await env.aclose()
        assert pools.metrics()["sandbox/leases_count"] == leases


async def test_an_environment_that_is_driven_in_a_thread_makes_its_own_sandboxes():
    agar.register("OrderedHunt-v0", lambda: OrderEnforcing(Hunt(sandbox={"backend": "fake"})))
    async with SandboxPools() as pools:
        env = as_async(make_env(pools, "OrderedHunt-v0", {}))
        await env.areset(seed=1)
        await env.astep(open_box(10, call=0))
        await env.aclose()
        assert pools.metrics()["sandbox/leases_count"] == 0


class Reserved(ToyEngine):
    """Refuses what SGLang does: a prompt of its context less six, or longer."""

    context = 0

    async def generate(self, ids, sampling, *, routing_key):
        if len(ids) >= self.context - 6:
            raise EngineRefused("the engine refused a request with HTTP 400: Input length exceeds the maximum")
        return await super().generate(ids, sampling, routing_key=routing_key)


def settings(model, *, gateway=None, engines=None):
    return SimpleNamespace(
        gateway=SimpleNamespace(context_tokens=gateway),
        engines=SimpleNamespace(sglang={} if engines is None else {"context_length": engines}),
        policies={"main": SimpleNamespace(model=model)},
    )


@pytest.mark.parametrize("where", ["gateway", "engines", "model"])
async def test_a_prompt_at_the_end_of_the_context_gets_a_reply_or_a_length_stop(tmp_path, where):
    model = write_toy_model(tmp_path)
    family, ask = family_for(model), Message(role="user", content="Start at 0000.")
    prompt, found = len(family.render([ask])), {}
    reply = family.tokenizer.encode("gold " * 20, special=True)
    for clear in range(1, 12):
        engine = Reserved(lambda ids: reply)
        engine.context = prompt + clear
        (model / "config.json").write_text(
            json.dumps({"max_position_embeddings": engine.context if where == "model" else 4096})
        )
        recipe = settings(model, **({} if where == "model" else {where: engine.context}))
        async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
            session = gateway.open(
                policy="main", sampling=Sampling(max_tokens=64), context_tokens=context_tokens(recipe)
            )
            said = await session.call(ModelCall(messages=(ask,)))
            found[clear] = said.budget or len(said.node.sampled)
    # The last input of a reply that goes on after a publish has one token less than prompt and reply.
    assert found == {clear: Budget.CONTEXT if clear < 7 else clear - 6 for clear in range(1, 12)}


def test_the_shortest_context_that_anybody_names_holds(tmp_path):
    assert context_tokens(settings(tmp_path, gateway=100, engines=50)) == 44
    (tmp_path / "config.json").write_text("{}")
    assert context_tokens(settings(tmp_path)) is None


def test_a_policys_family_writes_the_date_of_the_run(tmp_path):
    model = write_model(tmp_path / "model", "{{ strftime_now('%d %b %Y') }}<|im_end|>", TOKENS["qwen3"])
    policies = {"main": SimpleNamespace(model=model)}
    recipe = SimpleNamespace(policies=policies, ledger=LedgerConfig(today=date(2024, 7, 26)))
    family = family_of(recipe, "main")
    assert family.tokenizer.decode(family.render([Message(role="user", content="a")])) == "26 Jul 2024<|im_end|>"
