"""Settings of the agent that plays."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from agar.config import BaseConfig
from agar.sandbox.config import SandboxSpec, check_env_names


class ChatConfig(BaseConfig):
    """The chat agent: it answers every observation with one model call."""

    type: Literal["chat"] = "chat"
    transport: Literal["http", "direct"] = "http"
    """How it calls the model: `http` through the official OpenAI client and the gateway, as foreign agents do;
    `direct` within the process. The ledger is the same."""
    model: str = Field("agar", min_length=1)
    """The model name that is sent over HTTP; the session decides which policy answers, whatever it says."""
    max_turns: int | None = Field(None, ge=1)
    """The agent stops by itself after so many turns; None leaves it to the environment's own limit."""
    timeout_s: float = Field(600.0, gt=0)
    """How long one model call may take over HTTP, a pause for a publish included."""
    max_retries: int = Field(1, ge=0, le=5)
    """How often the client repeats a call that failed with a 5xx or a broken connection. The body is the same, so the
    gateway answers from its ledger if the first one got through: nothing is sampled twice."""


class HarnessSandbox(SandboxSpec):
    """A sandbox with room for an agent program."""

    memory_mib: int = Field(2048, ge=16)
    """Memory of all its processes and of the files it has written, in MiB."""
    pids: int = Field(256, ge=8)
    """Processes and threads at one time."""
    disk_mib: int = Field(256, ge=1)
    """Size of everything it may write (`/work`, `/tmp` and `/dev/shm` together), in MiB; held in memory."""


class HarnessConfig(BaseConfig):
    """A harness: an existing program plays, which is given the task and whose last word is the answer.

    In `command`, `stdin`, the texts of `files` and the values of `env`, `{prompt}` stands for what the environment
    says, `{base_url}` for the gateway's OpenAI base URL (ending in `/v1`), `{model}` for `model`. The session key is
    in the variables that official clients read, and nowhere else.
    """

    type: Literal["harness"] = "harness"
    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments, run in an empty folder of its own."""
    stdin: str = ""
    """What it reads."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files in its folder before it starts, by relative path; those of the task are added."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables besides, or instead of, the session's; nothing else is inherited."""
    model: str = Field("agar", min_length=1)
    """The model name that the program is given; the session decides which policy answers, whatever it says."""
    answer_file: str | None = None
    """The file in its folder that holds its answer; None takes what it wrote to stdout."""
    timeout_s: float = Field(300.0, gt=0)
    """How long it may run in an episode; then it is killed with all that it has started, and the episode is truncated.
    Shorter than `rollout.episode_timeout_s`, so that its output is kept."""
    output_bytes: int = Field(1 << 20, ge=1)
    """Bytes kept of stdout, and as many of stderr; a program that writes more is killed."""
    isolation: Literal["sandbox", "none"] = "sandbox"
    """`sandbox`: it sees its folder, system programs, `sandbox.mounts` and the gateway. `none`: it runs as you and can
    do whatever you can; for programs that do not run what a model wrote."""
    sandbox: HarnessSandbox = HarnessSandbox()
    """The sandbox, where there is one. Its network is always the gateway; its time and output are the harness's."""
    artefacts: tuple[str, ...] = ()
    """Patterns of files in its folder that are kept, such as `*.patch` or `out/**/*.json`."""
    artefacts_dir: Path | None = None
    """Where they are kept, in a folder for each episode."""

    @field_validator("sandbox", mode="before")
    @classmethod
    def _any_spec(cls, sandbox: object) -> object:
        return sandbox.model_dump() if type(sandbox) is SandboxSpec else sandbox

    @field_validator("env")
    @classmethod
    def _names_are_sane(cls, env: dict[str, str]) -> dict[str, str]:
        check_env_names(env)
        return env

    @field_validator("artefacts")
    @classmethod
    def _patterns_stay_inside(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern or PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
                raise ValueError(f"artefacts: {pattern!r} must be a relative pattern without '..'")
        return patterns

    @model_validator(mode="after")
    def _artefacts_have_a_place(self) -> Self:
        if self.artefacts and self.artefacts_dir is None:
            raise ValueError("artefacts are to be kept, but artefacts_dir is not set: set it to a folder")
        return self


AgentConfig = Annotated[ChatConfig | HarnessConfig, Field(discriminator="type")]
"""Any agent, told apart by `type`."""
