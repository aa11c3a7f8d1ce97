"""The environments by name, shared with Gymnasium's own registry."""

import copy
import difflib
import inspect
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import gymnasium

from agar.envs.entry_points import EntryPoint, imported, load, name_of
from agar.envs.plugins import load_plugins
from agar.envs.tasks import SeededTasks, TaskSet, TaskSource
from agar.errors import ConfigError

if TYPE_CHECKING:
    from agar.envs.isolation.config import ProcessLimits

logger = logging.getLogger(__name__)

Isolation = Literal["inline", "process"]
"""Where an environment runs: in this process, or in one of its own, which can be killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """What the registry knows of an environment."""

    id: str
    """Its name, in Gymnasium's syntax: `[namespace/]Name-v0`."""
    entry_point: EntryPoint
    """What makes it."""
    max_turns: int | None = None
    """The episode is truncated after this many turns; None leaves it to the environment and the other budgets."""
    task_source: TaskSource | str
    """Gives the task set of a split; or "module:attribute" that names it."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of every `make`, which may override them."""
    isolation: Isolation = "inline"
    """Where it runs unless `make` says otherwise."""
    limits: "ProcessLimits | None" = None
    """What its process may use; None takes the defaults."""

    def tasks(self, split: str = "train") -> TaskSet:
        """The task set of a split.

        Raises:
            ConfigError: the split is unknown, or the named source cannot be imported.
        """
        source: TaskSource = load(self.task_source) if isinstance(self.task_source, str) else self.task_source
        return source(split)


def _built_in(id: str, module: str, *, max_turns: int, tasks: TaskSource | None = None) -> EnvSpec:
    name, source = id.partition("-")[0], f"agar.envs.library.{module}"
    return EnvSpec(id=id, entry_point=f"{source}:{name}", max_turns=max_turns, task_source=tasks or f"{source}:tasks")


_BUILTIN = (
    _built_in("Guess-v0", "guess", max_turns=8, tasks=SeededTasks("Guess-v0")),
    _built_in("Hunt-v0", "hunt", max_turns=8),
    _built_in("Question-v0", "question", max_turns=1),
    _built_in("Calc-v0", "calc", max_turns=8),
    _built_in("Words-v0", "words", max_turns=6),
    _built_in("Fill-v0", "fill", max_turns=8),
    _built_in("Keys-v0", "keys", max_turns=40),
    _built_in("Sql-v0", "sql", max_turns=8),
)

_VERSION = re.compile(r"-v\d+$")
_specs: dict[str, EnvSpec] = {}


def register(
    id: str,
    entry_point: EntryPoint,
    *,
    max_turns: int | None = None,
    tasks: TaskSource | str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    isolation: Isolation = "inline",
    limits: "ProcessLimits | Mapping[str, Any] | None" = None,
) -> EnvSpec:
    """Register an environment here and in Gymnasium; a name that agar knows already is replaced.

    Args:
        id: its name, `[namespace/]Name-v0`.
        entry_point: a class or function that makes it, or "module:attribute".
        max_turns: truncate the episode after this many turns.
        tasks: a function from split to task set, or "module:attribute". The default gives seeded tasks, whose train
            and held-out seeds are disjoint.
        kwargs: arguments of every `make`.
        isolation: `process` runs it in a process of its own: whatever it does, it hurts only its own episode.
        limits: what that process may use; a mapping holds the fields of `ProcessLimits`.

    Returns:
        What was registered.

    Raises:
        ConfigError: the name is malformed or belongs to an environment of Gymnasium's, max_turns is no integer of at
            least 1, or what should make the environment or its tasks cannot.
    """
    if max_turns is not None and (type(max_turns) is not int or max_turns < 1):
        raise ConfigError(f"max_turns must be an integer of at least 1, got {max_turns!r}: pass None for no limit")
    for what, maker in (("entry_point", entry_point), ("tasks", tasks)):
        if not (callable(maker) or isinstance(maker, str) or (what == "tasks" and maker is None)):
            raise ConfigError(f'{what} of {id} must be a class, a function or "module:attribute", got {maker!r}')
    spec = EnvSpec(
        id=id,
        entry_point=entry_point,
        max_turns=max_turns,
        task_source=SeededTasks(id) if tasks is None else tasks,
        kwargs=dict(kwargs or {}),
        isolation=_checked(isolation),
        limits=_limits(limits, id),
    )
    old = _specs.get(id)
    if old is not None and name_of(old.entry_point) != name_of(entry_point):
        logger.info("%s now means %s instead of %s", id, name_of(entry_point), name_of(old.entry_point))
    _add(spec)
    return spec


def make(
    id: "str | EnvSpec | gymnasium.envs.registration.EnvSpec",
    *,
    isolation: Isolation | None = None,
    limits: "ProcessLimits | Mapping[str, Any] | None" = None,
    render_mode: str | None = None,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """Make an environment, without Gymnasium's wrappers around it.

    Args:
        id: its name; "module:Name-v0" imports the module first; without "-v0" its latest version is meant. What is
            known of it (`spec(…)`, `env.spec`) makes it as that says: arguments, isolation, limits and turn limit.
        isolation: where it runs; None leaves it as it was registered.
        limits: what its own process may use; a mapping holds the fields of `ProcessLimits`.
        render_mode: `ansi` for an environment whose `render` gives a text.
        kwargs: arguments of its constructor, over those it was registered with.

    Returns:
        The environment; `env.spec` says how it was made, its turn limit included (`as_async` applies it).

    Raises:
        ConfigError: nobody registered the name, or something else by it; its entry point cannot be imported or is not
            an environment, an argument is not one of the constructor's, or there are limits but no process, or limits
            that are none.
    """
    entry = _known(id)
    arguments = {**entry.kwargs, **kwargs}
    where = entry.isolation if isolation is None else _checked(isolation)
    if limits is not None and where == "inline":
        raise ConfigError(f'limits of {entry.id} bound its own process: make it with isolation="process" too')
    bounds = (_limits(limits, entry.id) or entry.limits) if where == "process" else None
    env = _isolated(entry, arguments, bounds) if where == "process" else _inline(entry, arguments)
    if render_mode is not None:
        env.unwrapped.render_mode = render_mode
    known = env.unwrapped.spec = copy.copy(gymnasium.registry[entry.id])
    known.kwargs, known.max_episode_steps = arguments, entry.max_turns
    known.entry_point = _Maker(entry.id, where, bounds)
    return env


def _known(id: "str | EnvSpec | gymnasium.envs.registration.EnvSpec") -> EnvSpec:
    """What is registered, as the spec in hand has it."""
    if isinstance(id, EnvSpec):
        if id.entry_point != (known := spec(id.id)).entry_point:
            names = name_of(known.entry_point), name_of(id.entry_point)
            raise ConfigError(f"{id.id} means {names[0]}, and {names[1]} in the spec: register that, or take spec(id)")
        return replace(id, isolation=_checked(id.isolation), limits=_limits(id.limits, id.id))
    if isinstance(id, gymnasium.envs.registration.EnvSpec):
        entry, maker = spec(id.id), id.entry_point
        entry = replace(entry, kwargs={**entry.kwargs, **id.kwargs}, max_turns=id.max_episode_steps)
        if isinstance(maker, _Maker) and maker.isolation is not None:
            entry = replace(entry, isolation=maker.isolation, limits=maker.limits or entry.limits)
        return entry
    return spec(id)


def spec(id: str) -> EnvSpec:
    """What is known of an environment.

    Args:
        id: its name; "module:Name-v0" imports the module first; without "-v0" its latest version is meant.

    Raises:
        ConfigError: nobody registered the name, or the module cannot be imported.
    """
    if not isinstance(id, str):
        raise ConfigError(f'expected the name of an environment, such as "Hunt-v0", got {id!r}')
    module, _, name = id.rpartition(":")
    if module:
        imported(module, wanted_by=id)
    if name in _specs:
        return _specs[name]
    broken = [reason for reason in load_plugins().values() if reason is not None]
    if name in _specs:
        return _specs[name]
    if versions := [known for known in _specs if _VERSION.sub("", known) == name]:
        return _specs[max(versions, key=lambda known: int(known.rpartition("-v")[2]))]
    raise ConfigError("; ".join([f"no environment is registered as {name!r}: {_hint(name)}", *broken]))


def _hint(name: str) -> str:
    """What somebody may have meant by a name that nobody registered."""
    if name in gymnasium.registry:
        return "it is one of Gymnasium's own, whose actions are no turns; gymnasium.make makes it"
    bare = _VERSION.sub("", name)
    by_name: dict[str, list[str]] = {}
    for known in sorted(_specs):
        by_name.setdefault(_VERSION.sub("", known), []).append(known)
    if bare in by_name:
        return f"there is {', '.join(by_name[bare])}"
    if near := difflib.get_close_matches(bare, by_name, n=1):
        return f"did you mean {by_name[near[0]][-1]}?"
    return 'register it, or name its module: "module:Name-v0"'


def registered() -> list[str]:
    """The names of all registered environments, those of installed packages included, sorted."""
    load_plugins()
    return sorted(_specs)


def _add(entry: EnvSpec) -> None:
    if entry.id in gymnasium.registry:
        if entry.id not in _specs:
            raise ConfigError(f"{entry.id} is an environment of Gymnasium's: choose another name")
        del gymnasium.registry[entry.id]  # Gymnasium warns when a name is registered twice
    try:
        gymnasium.register(entry.id, _Maker(entry.id), max_episode_steps=entry.max_turns, kwargs=dict(entry.kwargs))
    except gymnasium.error.Error as error:
        raise ConfigError(f"{entry.id!r} cannot be registered: {error}") from error
    _specs[entry.id] = entry


@dataclass(frozen=True, slots=True)
class _Maker:
    """What Gymnasium calls to make an environment of ours; where one was made already, as that one was."""

    id: str
    isolation: Isolation | None = None
    limits: "ProcessLimits | None" = None

    def __call__(self, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        return make(self.id, **{"isolation": self.isolation, "limits": self.limits, **kwargs})


def _inline(entry: EnvSpec, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    creator = load(entry.entry_point) if isinstance(entry.entry_point, str) else entry.entry_point
    try:
        env = creator(**arguments)
    except TypeError as error:
        try:
            inspect.signature(creator).bind(**arguments)
        except TypeError as mismatch:
            raise ConfigError(f"{entry.id} cannot be made with {sorted(arguments)}: {mismatch}") from error
        raise
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(f"{entry.id} must be a gymnasium.Env, got {type(env).__name__}: subclass agar.Env")
    return env


def _isolated(entry: EnvSpec, arguments: Mapping[str, Any], limits: "ProcessLimits | None") -> gymnasium.Env[Any, Any]:
    from agar.envs.isolation.config import ProcessLimits
    from agar.envs.isolation.env import ProcessEnv

    return ProcessEnv(entry.id, entry.entry_point, arguments, limits or ProcessLimits())


def _limits(limits: "ProcessLimits | Mapping[str, Any] | None", id: str) -> "ProcessLimits | None":
    if not isinstance(limits, Mapping):
        return limits
    from pydantic import ValidationError

    from agar.config.report import explain
    from agar.envs.isolation.config import ProcessLimits

    try:
        return ProcessLimits.model_validate(limits)
    except ValidationError as error:
        raise ConfigError(explain(ProcessLimits, limits, error, lambda path: f"limits of {id}")) from error


def _checked(isolation: Isolation) -> Isolation:
    if isolation not in ("inline", "process"):
        raise ConfigError(f'isolation must be "inline" or "process", got {isolation!r}')
    return isolation


for _entry in _BUILTIN:  # names only: the modules are imported on the first make
    _add(_entry)
