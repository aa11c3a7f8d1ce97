"""Registering and making, here and in Gymnasium."""

import contextlib
import subprocess
import sys
from dataclasses import replace

import gymnasium
import pytest

import agar
from agar.envs import plugins
from agar.envs.base import Env
from agar.envs.isolation.config import ProcessLimits
from agar.envs.isolation.env import ProcessEnv
from agar.envs.library.guess import Guess
from agar.envs.registry import make, register, registered, spec
from agar.envs.tasks import GeneratedTasks
from agar.errors import ConfigError
from agar.types import TaskRow


class Sized(Env):
    """Takes an argument."""

    def __init__(self, *, size: int = 1):
        self.size = size


class Broken(Env):
    """Cannot be made."""

    def __init__(self):
        raise TypeError("my own mistake")


def test_a_registered_environment_is_made_with_its_arguments_and_those_of_make():
    register("Sized-v0", Sized, kwargs={"size": 2})
    assert make("Sized-v0").size == 2
    assert make("Sized-v0", size=3).size == 3
    assert gymnasium.make("Sized-v0").unwrapped.size == 2
    assert "Sized-v0" in registered()


def test_make_says_how_it_was_made_and_puts_no_wrapper_around():
    register("Limited-v0", Sized, max_turns=4)
    env = make("Limited-v0", size=5)
    assert type(env) is Sized
    assert (env.spec.id, env.spec.max_episode_steps, env.spec.kwargs) == ("Limited-v0", 4, {"size": 5})
    assert gymnasium.spec("Limited-v0").kwargs == {}
    assert env.spec.make().unwrapped.size == 5


def test_gymnasium_truncates_at_the_turn_limit():
    env = gymnasium.make("agar.envs.registry:Guess-v0")
    env.reset(seed=1)
    ends = [env.step(agar.Turn(text="0"))[2:4] for _ in range(8)]
    assert ends == [(False, False)] * 7 + [(False, True)]


def test_a_name_registered_again_means_the_new_one():
    register("Again-v0", Sized, kwargs={"size": 1})
    register("Again-v0", Sized, kwargs={"size": 2})
    assert make("Again-v0").size == 2
    register("Again-v0", Guess)
    assert isinstance(make("Again-v0"), Guess)
    assert isinstance(gymnasium.make("Again-v0").unwrapped, Guess)


def test_a_users_environment_takes_the_name_of_a_built_in_one():
    code = (
        "import agar\n"
        "class Guess(agar.Env):\n"
        "    pass\n"
        "agar.register('Guess-v0', Guess)\n"
        "import agar.envs.library.guess\n"
        "print(type(agar.make('Guess-v0')).__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert (done.stdout, done.stderr) == ("__main__\n", "")


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"'Hnt-v0'.*did you mean Hunt-v0"):
        make("Hnt-v0")
    with pytest.raises(ConfigError, match="name its module"):
        make("zzzzzzzz")
    with pytest.raises(ConfigError, match=r"did you mean Guess-v0"):  # a version says nothing about nearness
        make("Gess-v1")
    with pytest.raises(ConfigError, match=r"'CartPole-v1': it is one of Gymnasium's own"):
        make("CartPole-v1")
    register("Many-v0", Sized)
    register("Many-v2", Sized)
    with pytest.raises(ConfigError, match=r"'Many-v7': there is Many-v0, Many-v2"):
        make("Many-v7")


def test_what_is_known_of_an_environment_makes_it():
    register("Sized-v0", Sized, kwargs={"size": 2})
    assert make(make("Sized-v0", size=4).spec).size == 4
    assert make(make("Sized-v0", size=4).spec, size=5).size == 5
    assert make(spec("Sized-v0")).size == 2
    with pytest.raises(ConfigError, match="expected the name of an environment"):
        make(5)


def test_what_is_known_of_an_environment_makes_it_where_and_within_what_it_says():
    register("Bounded-v0", "agar.envs.library.guess:Guess", max_turns=4)
    limits = ProcessLimits(step_timeout_s=7)
    bounded = replace(spec("Bounded-v0"), isolation="process", limits=limits, max_turns=2)
    for made in (
        make("Bounded-v0", isolation="process", limits=limits),
        make(make("Bounded-v0", isolation="process", limits={"step_timeout_s": 7}).spec),
        make("Bounded-v0", isolation="process", limits=limits).spec.make().unwrapped,
        make(bounded),
        make(make(bounded).spec),
    ):
        with contextlib.closing(made):
            assert isinstance(made, ProcessEnv)
            assert made.limits == limits
    assert [make(each).spec.max_episode_steps for each in (spec("Bounded-v0"), bounded, make(bounded).spec)] == [
        4,
        2,
        2,
    ]
    inline = make(make(bounded).spec, isolation="inline")
    assert (type(inline), inline.spec.max_episode_steps) == (Guess, 2)
    register("Bounded-v0", "agar.envs.library.guess:Guess", isolation="process")
    assert type(make(make("Bounded-v0", isolation="inline").spec)) is Guess
    assert isinstance(make(make("Bounded-v0").spec), ProcessEnv)


def test_a_spec_that_holds_something_else_than_its_name_means_is_refused():
    register("Sized-v0", Sized)
    with pytest.raises(ConfigError, match=r"Sized-v0 means .*Sized, and .*Guess in the spec: register that"):
        make(replace(spec("Sized-v0"), entry_point=Guess))
    with pytest.raises(ConfigError, match="isolation must be"):
        make(replace(spec("Sized-v0"), isolation="thread"))


def test_limits_that_are_none_are_named():
    with pytest.raises(ConfigError, match="did you mean memory_mib"):
        make("Guess-v0", isolation="process", limits={"memory": 5})
    with pytest.raises(ConfigError, match=r"step_timeout_s.*greater than 0"):
        register("Sized-v0", Sized, isolation="process", limits={"step_timeout_s": -1})


def test_a_module_in_the_name_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "my_gym_room.py").write_text(
        "import agar\nclass Room(agar.Env):\n    pass\nagar.register('Room-v0', Room)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(make("my_gym_room:Room-v0")).__name__ == "Room"
    with pytest.raises(ConfigError, match="cannot be found"):
        make("no_such_module:Room-v0")


def test_what_a_module_itself_lacks_is_not_taken_for_the_module(tmp_path, monkeypatch):
    (tmp_path / "my_gym_cellar.py").write_text("import my_gym\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="'my_gym'"):
        make("my_gym_cellar:Cellar-v0")


def test_an_entry_point_is_named_by_module_and_attribute():
    register("Named-v0", "agar.envs.library.guess:Guess")
    assert isinstance(make("Named-v0"), Guess)
    for wrong, complaint in [
        ("agar.envs.library.guess", "module:attribute"),
        ("agar.envs.library.guess:Gess", "no 'Gess'"),
        ("agar.envs.library.gess:Guess", "cannot be found"),
    ]:
        register("Named-v0", wrong)
        with pytest.raises(ConfigError, match=complaint):
            make("Named-v0")


def test_arguments_that_do_not_fit_are_the_callers_mistake_and_others_the_environments():
    register("Sized-v0", Sized)
    with pytest.raises(ConfigError, match="unexpected keyword argument 'sise'"):
        make("Sized-v0", sise=3)
    register("Broken-v0", Broken)
    with pytest.raises(TypeError, match="my own mistake"):
        make("Broken-v0")


def test_what_is_not_an_environment_is_refused():
    register("Not-v0", dict)
    with pytest.raises(ConfigError, match=r"must be a gymnasium\.Env, got dict"):
        make("Not-v0")


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("CartPole-v1", {}, "of Gymnasium's"),
        ("not a name", {}, "cannot be registered"),
        ("Fine-v0", {"max_turns": 0}, "at least 1"),
        ("Fine-v0", {"max_turns": "8"}, "an integer of at least 1, got '8'"),
        ("Fine-v0", {"max_turns": True}, "an integer of at least 1, got True"),
        ("Fine-v0", {"tasks": 5}, 'tasks of Fine-v0 must be a class, a function or "module:attribute", got 5'),
        ("Fine-v0", {"entry_point": 5}, "entry_point of Fine-v0 must be a class"),
    ],
)
def test_impossible_registrations_are_refused(name, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        register(name, **{"entry_point": Sized, **settings})
    assert name not in registered()


def test_tasks_come_from_the_environments_own_source_or_from_seeds():
    own = register("Own-v0", Sized, tasks=lambda split: GeneratedTasks(lambda i: TaskRow(key=split), size=1))
    assert own.tasks("heldout")[0].key == "heldout"
    register("Named-v0", Sized, tasks="agar.envs.library.hunt:tasks")
    assert spec("Named-v0").tasks("train")[0].prompt.startswith("Start at")
    assert register("Seeds-v0", Sized).tasks("train")[3].payload == {"seed": 6}


def test_a_name_without_a_version_means_the_latest_one():
    for version in (1, 2, 10):
        register(f"own/Sized-v{version}", Sized, kwargs={"size": version})
    assert make("own/Sized").size == 10
    assert spec("own/Sized").id == "own/Sized-v10"


def test_an_installed_package_brings_its_environments(tmp_path, monkeypatch):
    """As pip leaves it: a module, and a dist-info folder with entry points."""
    monkeypatch.setattr(plugins, "_loaded", {})
    info = tmp_path / "my_gym-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-gym\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agar.envs]\nmine = my_gym_envs\nbroken = my_gym_broken\n")
    (tmp_path / "my_gym_envs.py").write_text(
        "import agar\nclass Room(agar.Env):\n    pass\nagar.register('mine/Room-v0', Room)\n"
    )
    (tmp_path / "my_gym_broken.py").write_text("raise OSError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(make("mine/Room-v0")).__name__ == "Room"
    assert "mine/Room-v0" in registered()
    with pytest.raises(ConfigError, match=r"did you mean mine/Room-v0.*my_gym_broken raised OSError: no licence"):
        spec("mine/Rom-v0")


def test_the_room_loads_no_heavy_module():
    code = (
        "import sys, agar.envs, agar.envs.registry, agar.envs.tool_env, agar.envs.library.hunt, agar.envs.checker;"
        "agar.make('Hunt-v0');"
        "print(sorted({'openai', 'torch', 'transformers', 'ray', 'sglang', 'megatron', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"
