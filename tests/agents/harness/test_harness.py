"""A program plays: how it gets its task and gives its answer, and whose failure it is when it does not."""

import asyncio
import json

import httpx
import pytest
from pydantic import ValidationError
from tests.agents.harness.conftest import Gold

import agar
from agar.agents.build import build_agent
from agar.agents.config import HarnessConfig
from agar.agents.harness.harness import Harness
from agar.agents.harness.place import open_place
from agar.config import resolve
from agar.errors import ConfigError, EngineError, EngineRefused
from agar.ledger.toy import ToyEngine
from agar.recipe.config import Recipe
from agar.rollout.gateway.server import Gateway
from agar.sandbox import SandboxSpec
from agar.types import Outcome, Reward, Sampling, TaskRow

PLACES = ["none", pytest.param("sandbox", marks=pytest.mark.sandbox)]


@pytest.mark.parametrize("isolation", PLACES)
async def test_its_answer_earns_the_environments_reward_and_its_calls_are_trained(playing, program, rows, isolation):
    async with playing("twelve", "gold 29") as play:
        config = program("ask('What?'); print(ask(sys.argv[1]))", isolation=isolation)
        trace = await play(config)
        assert play.gateway.open_sessions == 0
    assert (trace.outcome, trace.reason) == (Outcome.COMPLETED, "")
    assert trace.reward.total == 1.0
    assert trace.turn_rewards == {1: 1.0}
    assert trace.nodes[1].messages[-1].text == "Be brief.\n\nHow much gold?"
    [run] = trace.meta["agent"]["runs"]
    assert (run["code"], run["killed_by"], run["stdout"]) == (0, None, "gold 29\n")
    assert sum(int(row.loss_mask.sum()) for row in rows(trace)) == sum(len(node.sampled) for node in trace.nodes)


@pytest.mark.parametrize("isolation", PLACES)
async def test_its_task_comes_by_argument_stdin_or_file_and_its_answer_by_file(playing, program, isolation):
    code = """
said = [sys.argv[1], sys.stdin.read(), open("task/prompt.txt").read()]
assert said == ["Be brief.\\n\\nHow much gold?"] * 3, said
assert (os.environ["WHERE"], os.environ["NAME"]) == (os.environ["OPENAI_BASE_URL"], "small-{curly}")
open("answer.txt", "w").write(ask(open("hint").read()) + "\\n")
print("chatter")
"""
    config = program(
        code,
        isolation=isolation,
        stdin="{prompt}",
        files={"task/prompt.txt": "{prompt}"},
        env={"WHERE": "{base_url}", "NAME": "{model}-{curly}"},
        model="small",
        answer_file="answer.txt",
    )
    async with playing() as play:
        trace = await play(config, env=lambda: Gold(files={"hint": "a hint"}))
    assert trace.reward.total == 1.0, trace.meta
    assert trace.nodes[0].messages[0].text == "a hint"


async def test_an_environment_that_goes_on_is_answered_by_another_run_in_the_same_folder(playing, program):
    code = "open('seen', 'a').write(sys.argv[1] + '|'); print(ask(open('seen').read()))"
    async with playing("gold 3", "gold 29") as play:
        trace = await play(program(code), env=lambda: Gold(patience=3))
        assert play.env.answers == ["gold 3", "gold 29"]
    assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, 1.0)
    assert trace.nodes[1].messages[0].text == "Be brief.\n\nHow much gold?|No. How much?|"
    assert len(trace.meta["agent"]["runs"]) == 2


@pytest.mark.parametrize("isolation", PLACES)
async def test_the_answer_of_one_run_is_not_the_answer_of_the_next(playing, program, isolation):
    code = """
ask("What?")
if not os.path.exists("seen"):
    open("answer.txt", "w").write("gold 3")
open("seen", "w")
"""
    async with playing() as play:
        await play(program(code, isolation=isolation, answer_file="answer.txt"), env=lambda: Gold(patience=3))
        assert play.env.answers == ["gold 3", "", ""]


@pytest.mark.parametrize("isolation", PLACES)
async def test_words_that_no_process_can_be_given_do_not_stop_it(playing, program, isolation):
    class Odd(Gold):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return "a\0b c", {}

    config = program("print(ask(sys.argv[1]))", isolation=isolation, stdin="{prompt}", env={"TASK": "{prompt}"})
    async with playing() as play:
        trace = await play(config, env=Odd)
    assert trace.reward.total == 1.0, trace.reason
    assert trace.nodes[0].messages[0].text == "a\ufffdb c"


@pytest.mark.parametrize("isolation", PLACES)
@pytest.mark.parametrize("where", ["argument", "variable"])
async def test_a_prompt_too_long_for_a_process_is_the_programs_failure(playing, program, isolation, where):
    class Quoting(Gold):
        def step(self, action):
            _, reward, over, cut, info = super().step(action)
            return action.text * 140_000, reward, over, cut, info

    config = program("print(ask('What?')[:1])", isolation=isolation)
    if where == "variable":
        config = config.model_copy(update={"command": config.command[:-1], "env": {"TASK": "{prompt}"}})
    async with playing("gold 3") as play:
        trace = await play(config, env=lambda: Quoting(patience=3))
        assert play.env.answers == ["g"]
    assert trace.outcome is Outcome.AGENT_ERROR, trace.reason
    assert trace.reason.startswith("the program ended with code 126: the command is too long")


async def test_no_answer_is_an_answer_that_earns_nothing(playing, program):
    async with playing() as play:
        trace = await play(program("ask('What?')", answer_file="answer.txt"))
        assert play.env.answers == [""]
    assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, 0.0)


@pytest.mark.parametrize("isolation", PLACES)
@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        ("ask('What?'); sys.exit('gave up')", Outcome.AGENT_ERROR, "the program ended with code 1: gave up"),
        ("ask('What?'); os.kill(os.getpid(), 11)", Outcome.AGENT_ERROR, "the program ended with code 139"),
        ("ask('What?'); print('x' * 10**7)", Outcome.AGENT_ERROR, "the program was killed (output)"),
        ("import nothing", Outcome.INFRA_ERROR, "the program ended with code 1 before its first model call"),
    ],
)
async def test_a_program_that_fails_has_lost_unless_no_model_had_a_part_in_it(
    playing, program, rows, isolation, code, outcome, reason
):
    async with playing() as play:
        trace = await play(program(code, isolation=isolation))
        assert play.env.answers == []
    assert trace.outcome is outcome
    assert trace.reason.startswith(reason)
    assert trace.reward.total == 0.0
    assert len(rows(trace)) == (outcome is Outcome.AGENT_ERROR)


@pytest.mark.parametrize("isolation", PLACES)
async def test_a_program_that_cannot_start_is_infrastructure(playing, isolation):
    async with playing() as play:
        trace = await play(HarnessConfig(command=("no-such-program",), isolation=isolation))
    assert trace.outcome is Outcome.INFRA_ERROR
    assert "code 127 before its first model call" in trace.reason


async def test_an_engine_that_fails_is_not_the_programs_failure(playing, program, rows):
    class Failing:
        calls = 0

        async def generate(self, ids, sampling, *, routing_key):
            raise EngineError("nobody is there")

    for code in ("ask('What?')", "\ntry:\n    ask('What?')\nexcept OSError:\n    print('gold 29')"):
        async with playing(engine=Failing()) as play:
            trace = await play(program(code))
        assert trace.outcome is Outcome.INFRA_ERROR
        assert "nobody is there" in trace.reason
        assert rows(trace) == []


async def test_a_call_that_the_engine_refuses_does_not_void_a_lost_episode(playing, program, rows):
    class Refusing:
        """Answers once, then takes no request."""

        def __init__(self, engine):
            self.engine = engine

        async def generate(self, ids, sampling, *, routing_key):
            if self.engine.prompts:
                raise EngineRefused("a schema that it does not know")
            return await self.engine.generate(ids, sampling, routing_key=routing_key)

    code = "ask('What?')\ntry:\n    ask('And?')\nexcept OSError as error:\n    sys.exit(f'refused: {error.code}')"
    async with playing("twelve") as told, playing(engine=Refusing(told.engine)) as play:
        trace = await play(program(code))
    assert (trace.outcome, trace.reason) == (Outcome.AGENT_ERROR, "the program ended with code 1: refused: 400")
    assert len(rows(trace)) == 1


@pytest.mark.parametrize("isolation", PLACES)
async def test_its_time_budget_truncates_and_what_came_before_is_trained(playing, program, rows, isolation):
    class Stalling:
        """Answers once, then is silent."""

        def __init__(self, engine):
            self.engine = engine

        async def generate(self, ids, sampling, *, routing_key):
            if self.engine.prompts:
                await asyncio.sleep(60)
            return await self.engine.generate(ids, sampling, routing_key=routing_key)

    async with playing("twelve") as told, playing(engine=Stalling(told.engine)) as play:
        trace = await play(program("ask('What?'); print('one'); ask('And?')", isolation=isolation, timeout_s=8.0))
        assert play.gateway.open_sessions == 0
    assert trace.outcome is Outcome.TRUNCATED
    assert trace.reason.startswith("the program's time budget of 8 s")
    assert trace.open_calls == 0
    assert len(rows(trace)) == 1


async def test_the_gateways_budget_truncates_a_program_that_stumbles_over_it(playing, program):
    code = "ask('What?'); sys.exit(0 if ask('And?') else 'it says nothing')"
    async with playing() as play:
        trace = await play(program(code), max_turns=1)
    assert (trace.outcome, trace.reason) == (Outcome.TRUNCATED, "budget: turns")


@pytest.mark.parametrize("isolation", PLACES)
async def test_its_key_opens_this_episode_only_and_is_nowhere_in_the_record(playing, program, isolation):
    code = "print(os.environ['OPENAI_API_KEY']); print(os.environ['OPENAI_API_KEY'], file=sys.stderr); ask('What?')"
    async with playing() as play:
        keys = []
        opened = play.gateway.open

        def remember(**fields):
            session = opened(**fields)
            keys.append(session.id)
            return session

        play.gateway.open = remember
        trace = await play(program(code, isolation=isolation))
        headers = {"authorization": f"Bearer {keys[0]}"}
        async with httpx.AsyncClient(base_url=play.gateway.base_url, headers=headers) as http:
            assert (await http.get("/models")).status_code == 401
        assert play.env.answers == ["<session key>"]
    assert keys[0] not in trace.dump().decode()
    assert trace.meta["agent"]["runs"][0]["stderr"] == "<session key>\n"


@pytest.mark.sandbox
async def test_in_a_sandbox_it_sees_its_key_its_folder_and_the_gateway_and_nothing_else(playing, program, monkeypatch):
    monkeypatch.setenv("AGAR_TEST_API_KEY", "sk-secret-4711")
    code = """
import glob, socket
ask("What?")
seen = {"env": dict(os.environ), "root": sorted(os.listdir("/")), "home": os.listdir(), "reached": []}
for path in glob.glob("/proc/[0-9]*/environ"):
    seen["env"]["sk-secret-4711"] = "leaked" if b"sk-secret-4711" in open(path, "rb").read() else "not seen"
for port in {PORTS}:
    try:
        socket.create_connection(("127.0.0.1", port), 5)
        seen["reached"].append(port)
    except OSError:
        pass
open("seen.json", "w").write(json.dumps(seen))
"""
    async with playing() as play:
        own = int(play.gateway.base_url.removesuffix("/v1").rpartition(":")[2])
        config = program(
            code.replace("{PORTS}", f"(8400, {own}, 22, 80)"), isolation="sandbox", answer_file="seen.json"
        )
        trace = await play(config)
        [answer] = play.env.answers
    assert trace.outcome is Outcome.COMPLETED, trace.reason
    seen = json.loads(answer)
    key = "<session key>"
    assert {name: value for name, value in seen["env"].items() if value == key} == dict.fromkeys(
        ("OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN"), key
    )
    assert seen["env"]["sk-secret-4711"] == "not seen"
    assert set(seen["env"]) <= {
        *("PATH", "HOME", "LANG", "LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_", "sk-secret-4711"),
        *("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"),
    }
    assert set(seen["root"]) <= {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr",
                                 "work"}  # fmt: skip
    assert seen["home"] == ["program.py"]
    assert seen["reached"] == [8400]


@pytest.mark.parametrize("isolation", PLACES)
async def test_its_artefacts_are_kept_and_links_are_not_followed(playing, program, tmp_path, isolation):
    (tmp_path / "secret").write_text("secret")
    code = f"""
os.makedirs("out/deep")
open("out/deep/a.json", "w").write("1")
open("fix.patch", "w").write("2")
open(f"{{os.environ['OPENAI_API_KEY']}}.patch", "w").write("4")
open("other", "w").write("3")
os.symlink("{tmp_path}/secret", "out/stolen.json")
os.symlink("{tmp_path}", "out/folder")
print(ask("What?"))
"""
    config = program(
        code, isolation=isolation, artefacts=("out/**/*.json", "*.patch", "secret"), artefacts_dir=tmp_path / "kept"
    )
    async with playing() as play:
        trace = await play(config, task=TaskRow(key="a task/7"))
    kept = trace.meta["agent"]["artefacts"]
    assert sorted(kept["files"]) == ["<session key>.patch", "fix.patch", "out/deep/a.json"]
    assert kept["skipped"] == {"symlink": 2}
    [folder] = (tmp_path / "kept").iterdir()
    assert folder.name.startswith("a-task-7-")
    assert str(folder) == kept["folder"]
    assert (folder / "out" / "deep" / "a.json").read_text() == "1"


async def test_artefacts_too_large_to_copy_are_named_not_kept(playing, program, tmp_path):
    code = "open('big', 'wb').truncate(300 << 20); print(ask('What?'))"
    config = program(code, artefacts=("big",), artefacts_dir=tmp_path / "kept")
    async with playing() as play:
        trace = await play(config)
    assert trace.reward.total == 1.0
    assert "more than" in trace.meta["agent"]["artefacts"]["error"]
    assert list((tmp_path / "kept").iterdir()) == []


async def test_artefacts_that_cannot_be_written_do_not_take_the_reward_back(playing, program, tmp_path, caplog):
    (tmp_path / "kept").write_text("a file, where a folder should be")
    config = program("print(ask('What?'))", artefacts=("*.patch",), artefacts_dir=tmp_path / "kept")
    async with playing() as play:
        trace = await play(config)
    assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, 1.0)
    assert "exists" in trace.meta["agent"]["artefacts"]["error"]
    assert "could not be kept" in caplog.text


async def test_artefacts_of_a_task_with_a_long_name_are_kept(playing, program, tmp_path):
    config = program("print(ask('What?'))", artefacts=("*.py",), artefacts_dir=tmp_path / "kept")
    async with playing() as play:
        trace = await play(config, task=TaskRow(key="k" * 300))
    assert trace.meta["agent"]["artefacts"]["files"] == ["program.py"]


class Mended(agar.ToolEnv):
    """Pays for what is in a file at the end, whatever the program says."""

    sandbox = SandboxSpec(backend="fake")
    collects = ("*.txt",)

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        return "Mend it.", {"files": {"a.txt": "wrong", "b.md": "x"}, "collects": self.collects}

    async def grade(self, fresh, artifacts):
        self.artifacts = artifacts
        return Reward(total=float(artifacts.files.get("a.txt") == b"right"))


@pytest.mark.parametrize("isolation", PLACES)
async def test_files_that_it_leaves_are_its_answer_where_the_environment_judges_files(playing, program, isolation):
    config = program("open('a.txt', 'w').write(ask('What?')); open('b.md', 'w')", isolation=isolation)
    async with playing("right") as play:
        trace = await play(config, env=Mended)
        assert dict(play.env.artifacts.files) == {"a.txt": b"right"}
    assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, 1.0), trace.reason


async def test_files_that_it_leaves_are_kept_without_its_key(playing, program):
    code = "ask('What?'); key = os.environ['OPENAI_API_KEY']; open(f'{key}.txt', 'w').write(f'a {key} b')"
    async with playing("right") as play:
        trace = await play(program(code), env=Mended)
        assert dict(play.env.artifacts.files) == {"a.txt": b"wrong", "<session key>.txt": b"a <session key> b"}
    assert trace.outcome is Outcome.COMPLETED, trace.reason


async def test_more_files_than_anybody_reads_are_none(playing, program):
    code = "ask('What?'); [open(f'{n}.txt', 'wb').truncate(200 << 20) for n in range(2)]"
    async with playing("right") as play:
        trace = await play(program(code), env=Mended)
        assert play.env.artifacts.files == {}
    assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, 0.0)


async def test_files_that_cannot_be_laid_out_are_the_environments_failure(playing, program):
    async with playing() as play:
        trace = await play(program("pass"), env=lambda: Gold(files={"../outside": "x"}))
    assert trace.outcome is Outcome.ENV_ERROR
    assert "could not be laid out" in trace.reason


def test_a_recipe_may_name_a_harness(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        """
        [policies.main]
        model = "model"

        [agent]
        type = "harness"
        command = ["claude", "-p", "{prompt}"]
        timeout_s = 60

        [agent.sandbox]
        memory_mib = 4096
        mounts = { "/opt/claude" = "/home/me/claude" }
        """
    )
    recipe = resolve(Recipe, files=[path], overrides=["--agent.output_bytes", "5000"]).config
    agent = build_agent(recipe.agent)
    assert isinstance(agent, Harness)
    assert agent.config.sandbox.memory_mib == 4096
    assert (agent.config.output_bytes, agent.config.isolation) == (5000, "sandbox")


def test_its_sandbox_keeps_its_room_whatever_else_is_set_of_it():
    config = HarnessConfig.model_validate({"command": ("true",), "sandbox": {"cpus": 2}})
    assert (config.sandbox.memory_mib, config.sandbox.pids, config.sandbox.disk_mib) == (2048, 256, 256)
    assert HarnessConfig(command=("true",), sandbox=SandboxSpec(pids=9)).sandbox.model_dump() == {
        **SandboxSpec().model_dump(),
        "pids": 9,
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": ()}, "at least 1"),
        ({"env": {"A=B": "x"}}, "environment variable"),
        ({"artefacts": ("*.patch",)}, "set it to a folder"),
        ({"artefacts": ("../x",), "artefacts_dir": "kept"}, "relative pattern"),
        ({"timeout_s": 0}, "greater than 0"),
    ],
)
def test_impossible_settings_are_refused(fields, said):
    with pytest.raises(ValidationError, match=said):
        HarnessConfig(**{"command": ("true",), **fields})


async def test_a_sandbox_needs_a_gateway_that_is_open(family, program):
    gateway = Gateway(engines={"main": ToyEngine(lambda ids: [1])}, families={"main": family})
    session = gateway.open(policy="main", sampling=Sampling())
    with pytest.raises(ConfigError, match="open the gateway first"):
        open_place(program("pass", isolation="sandbox"), session)
