"""Parses a Harbor task (``task.toml``, format 1.4) into what its pod needs; pure.

The format is Harbor's: https://harborframework.com/docs/tasks. What this product cannot honour is
refused by field. Sections that only describe a task, or serve Harbor's own reference solution, are
left out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_contracts.documents.datasets.records import BadRecordError
from rl_contracts.documents.harbor import HarborTask

CONFIG, INSTRUCTION, TEST = "task.toml", "instruction.md", "tests/test.sh"
COMPOSE = "environment/docker-compose.yaml"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
"""A line that marks benchmark data, which no agent is shown."""
SIZE = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([GMKgmk])$")
MIB = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
MOST_SECONDS = 86400
IGNORED = (
    *("schema_version", "version", "task", "metadata", "solution", "source", "artifacts"),
    "multi_step_reward_strategy",
)
UNSUPPORTED = {
    "steps": "has several steps; make a task of each",
    "environment.os": "is no Linux",
    "environment.gpus": "asks for GPUs, which pods of episodes have not",
    "environment.tpu": "asks for a TPU, which pods of episodes have not",
    "environment.mcp_servers": "names MCP servers; start them in the program",
    "environment.healthcheck": "has a health check; do it at the start of the program",
    "environment.skills_dir": "names skills; let the program read them",
    "agent.user": "names a user; pods run as one user without rights",
    "verifier.user": "names a user; pods run as one user without rights",
    "verifier.environment": "has an environment of its own; tests run in the program's pod",
    "verifier.collect": "has commands before the tests; put them into tests/test.sh",
}
"""Fields that change how a task is played, and what to do instead."""
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Variables = Annotated[
    dict[Annotated[str, Field(pattern=VARIABLE)], Annotated[str, Field(max_length=4096)]],
    Field(max_length=64),
]


def is_config(path: str) -> bool:
    """Whether a path below a source is the ``task.toml`` of a task, or of the source itself."""
    return path == CONFIG or (path.count("/") == 1 and path.endswith(f"/{CONFIG}"))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Network(_Section):
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None

    @property
    def closed(self) -> bool:
        return self.network_mode in ("no-network", "allowlist") or (
            self.network_mode is None and self.allow_internet is False
        )


class _Environment(_Network):
    docker_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    workdir: Annotated[str, Field(pattern="^/", max_length=1024)] | None = None
    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    storage_mb: Annotated[int, Field(gt=0)] | None = None
    memory: Annotated[str, Field(pattern=SIZE.pattern, max_length=32)] | None = None
    storage: Annotated[str, Field(pattern=SIZE.pattern, max_length=32)] | None = None
    env: Variables = {}
    build_timeout_sec: float | None = None
    gpu_types: list[str] | None = None


class _Agent(_Network):
    timeout_sec: Seconds | None = None


class _Verifier(_Network):
    timeout_sec: Seconds = 600.0
    env: Variables = {}
    environment_mode: Annotated[str, Field(pattern="^shared$")] | None = None


class _Config(_Section):
    environment: _Environment = _Environment()
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()


def parse_task(config: bytes, *, files: Collection[str]) -> HarborTask:
    """Parse a task's configuration.

    Args:
        config: contents of ``task.toml``.
        files: paths of the task's files, relative to its folder.

    Raises:
        BadRecordError: it is malformed, incomplete, or asks for what pods of episodes have not;
            the message begins with the field, or with the missing file.
    """
    for path in (INSTRUCTION, TEST):
        if path not in files:
            raise BadRecordError(f"has no {path}")
    if COMPOSE in files:
        raise BadRecordError(f"has {COMPOSE}: an episode has one container")
    parsed = _checked(_toml(config))
    environment = parsed.environment
    return HarborTask(
        image=environment.docker_image or "",
        folder=environment.workdir or "",
        agent_seconds=parsed.agent.timeout_sec,
        tests_seconds=parsed.verifier.timeout_sec,
        cpus=environment.cpus or 0.0,
        memory_mb=environment.memory_mb or _mib(environment.memory),
        storage_mb=environment.storage_mb or _mib(environment.storage),
        environment=_literal(environment.env, "environment.env"),
        tests_environment=_literal(parsed.verifier.env, "verifier.env"),
        public_network=not any(
            section.closed for section in (environment, parsed.agent, parsed.verifier)
        ),
    )


def instruction_of(text: bytes) -> str:
    """The instruction that a program is given: without marks of benchmark data at its start.

    Raises:
        BadRecordError: it is empty, or no UTF-8.
    """
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError as error:
        raise BadRecordError(f"{INSTRUCTION} is not UTF-8 at byte {error.start + 1}") from error
    at = 0
    while at < len(lines) and CANARY.fullmatch(lines[at].strip()):
        at += 1
    instruction = "\n".join(lines[at:]).strip("\n")
    if not instruction.strip():
        raise BadRecordError(f"{INSTRUCTION} is empty")
    return instruction


def name_of(config: bytes, folder: str) -> str:
    """The task's id: the name in its ``[task]`` section, else its folder's."""
    section = _toml(config).get("task")
    name = section.get("name") if isinstance(section, Mapping) else None
    return name if isinstance(name, str) and name else folder


def _toml(config: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(config.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadRecordError(f"is no TOML: {error}"[:300]) from error


def _checked(written: Mapping[str, Any]) -> _Config:
    for field, problem in UNSUPPORTED.items():
        section, _, name = field.rpartition(".")
        value = (written.get(section) if section else written) or {}
        asked = value.get(name) if isinstance(value, Mapping) else None
        if asked and not (name == "os" and str(asked).lower() == "linux"):
            raise BadRecordError(f"field {field!r} {problem}")
    kept = {
        section: _known(section, value)
        for section, value in written.items()
        if section not in IGNORED and section != "steps"
    }
    try:
        return _Config.model_validate(kept)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise BadRecordError(f"field {field!r}: {first['msg']}") from error


def _known(section: str, value: object) -> object:
    """A section without fields that were refused above where they ask for something."""
    if not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if f"{section}.{key}" not in UNSUPPORTED}


def _mib(size: str | None) -> int:
    match = SIZE.fullmatch(size) if size is not None else None
    return round(float(match[1]) * MIB[match[2].upper()]) if match is not None else 0


def _literal(variables: Mapping[str, str], field: str) -> dict[str, str]:
    for name, value in variables.items():
        if "${" in value:
            raise BadRecordError(
                f"field '{field}.{name}' takes a value of the machine that starts it: give it to "
                "the program by agent.program.env or envFrom, and remove it"
            )
    return dict(variables)
