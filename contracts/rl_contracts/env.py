"""Environment variables that the operator sets in trainer and sampler pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NAMESPACE = "RL_NAMESPACE"
JOB = "RL_JOB"
RUN = "RL_RUN"
ATTEMPT = "RL_ATTEMPT"
JOB_UID = "RL_JOB_UID"
POOL = "RL_POOL"
POD_NAME = "RL_POD_NAME"
POD_UID = "RL_POD_UID"
SPEC_FILE = "RL_SPEC_FILE"
STORES_FOLDER = "RL_STORES_FOLDER"
HUB_TOKEN_FILE = "RL_HUB_TOKEN_FILE"
TRACKING_FOLDER = "RL_TRACKING_FOLDER"
REPLICAS = "RL_REPLICAS"
REPLICA = "RL_REPLICA"
PROCESSES = "RL_PROCESSES"
LOCAL_RANK = "RL_LOCAL_RANK"
RENDEZVOUS = "PET_RDZV_ENDPOINT"
"""Set by training-operator: host and port of the first trainer pod."""
WEIGHTS_FOLDER = "RL_WEIGHTS_FOLDER"
ENGINE_URL = "RL_ENGINE_URL"
ENGINE_KEY_FOLDER = "RL_ENGINE_KEY_FOLDER"
ENGINE_RUNS = "RL_ENGINE_RUNS"
BASE_FOLDER = "RL_BASE_FOLDER"
LISTEN_PORT = "RL_LISTEN_PORT"
RELAY_PORT = "RL_RELAY_PORT"
CHAT_PORT = "RL_CHAT_PORT"
GATEWAY_PORT = "RL_GATEWAY_PORT"
POD_IP = "RL_POD_IP"
DRAIN_SECONDS = "RL_DRAIN_SECONDS"
TOOL_SECRETS_FOLDER = "RL_TOOL_SECRETS_FOLDER"
ENDPOINT_SECRETS_FOLDER = "RL_ENDPOINT_SECRETS_FOLDER"
SANDBOX_SOCKET = "RL_SANDBOX_SOCKET"
CODE_SOCKET = "RL_CODE_SOCKET"
CODE_FOLDER = "RL_CODE_FOLDER"
PROGRAMS = "RL_PROGRAMS"
EPISODE_PODS = "RL_EPISODE_PODS"
ENVIRONMENTS = "RL_ENVIRONMENTS"
TURNS_FOLDER = "RL_TURNS_FOLDER"

OPTIONAL = (
    HUB_TOKEN_FILE,
    TRACKING_FOLDER,
    REPLICAS,
    REPLICA,
    PROCESSES,
    LOCAL_RANK,
    ENGINE_RUNS,
    BASE_FOLDER,
    LISTEN_PORT,
    RELAY_PORT,
    CHAT_PORT,
    GATEWAY_PORT,
    POD_IP,
    SANDBOX_SOCKET,
    CODE_SOCKET,
    CODE_FOLDER,
    PROGRAMS,
    EPISODE_PODS,
    ENVIRONMENTS,
    TURNS_FOLDER,
    WEIGHTS_FOLDER,
)
"""Variables that may be missing; an empty value counts as missing."""


class EnvironmentVariableError(ValueError):
    """A variable that the operator always sets is missing or malformed."""


def required(environ: Mapping[str, str], name: str) -> str:
    """Return a variable's value.

    Raises:
        EnvironmentVariableError: it is missing or empty.
    """
    value = environ.get(name, "")
    if not value:
        raise EnvironmentVariableError(f"environment variable {name} is not set")
    return value


def integer(environ: Mapping[str, str], name: str) -> int:
    """Return a variable's value as an integer.

    Raises:
        EnvironmentVariableError: it is missing or not an integer.
    """
    value = required(environ, name)
    try:
        return int(value)
    except ValueError as error:
        raise EnvironmentVariableError(f"{name}={value!r} is not an integer") from error


def count(environ: Mapping[str, str], name: str) -> int:
    """Return a variable's value as an integer ≥ 1; 1 when it is not set.

    Raises:
        EnvironmentVariableError: it is not an integer or is less than 1.
    """
    value = integer(environ, name) if environ.get(name) else 1
    if value < 1:
        raise EnvironmentVariableError(f"{name}={value} must be at least 1")
    return value


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name, "")
    return Path(value) if value else None


def _port(environ: Mapping[str, str], name: str) -> int | None:
    return integer(environ, name) if environ.get(name) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEnv:
    """Environment of a trainer pod."""

    namespace: str
    job: str
    job_uid: str
    run: str
    attempt: int
    spec_file: Path
    stores_folder: Path
    hub_token_file: Path | None = None
    """File with the token for hf:// sources and models."""
    tracking_folder: Path | None = None
    """Folder with the trackers' credentials, a file for each key of their Secret."""
    replicas: int = 1
    """Number of trainer pods."""
    replica: int = 0
    """Index of this pod, from 0."""
    processes: int = 1
    """Processes in each pod."""
    local_rank: int = 0
    """Index of this process in its pod, from 0."""
    rendezvous: str = ""
    """``host:port`` of the first pod; empty when there is a single process."""
    listen_port: int | None = None
    """Port that serves metrics; None: no metrics."""
    turns_folder: Path | None = None
    """Folder with the agent's socket where trainer and engine share the pod's devices by turns;
    None: the devices are the trainer's own."""
    weights_folder: Path | None = None
    """The engine's weights folder, where they share the pod."""

    @property
    def size(self) -> int:
        """Number of processes of the whole trainer."""
        return self.replicas * self.processes

    @property
    def rank(self) -> int:
        """Index of this process among all of them; rank 0 is the leader."""
        return self.replica * self.processes + self.local_rank

    @classmethod
    def parse(cls, environ: Mapping[str, str]) -> TrainerEnv:
        """Parse the variables; raises EnvironmentVariableError when a value is invalid."""
        replicas, processes = count(environ, REPLICAS), count(environ, PROCESSES)
        return cls(
            replicas=replicas,
            replica=integer(environ, REPLICA) if replicas > 1 else 0,
            processes=processes,
            local_rank=integer(environ, LOCAL_RANK) if processes > 1 else 0,
            rendezvous=required(environ, RENDEZVOUS) if replicas * processes > 1 else "",
            namespace=required(environ, NAMESPACE),
            job=required(environ, JOB),
            job_uid=required(environ, JOB_UID),
            run=required(environ, RUN),
            attempt=integer(environ, ATTEMPT),
            spec_file=Path(required(environ, SPEC_FILE)),
            stores_folder=Path(required(environ, STORES_FOLDER)),
            hub_token_file=_path(environ, HUB_TOKEN_FILE),
            tracking_folder=_path(environ, TRACKING_FOLDER),
            listen_port=_port(environ, LISTEN_PORT),
            turns_folder=_path(environ, TURNS_FOLDER),
            weights_folder=(
                Path(required(environ, WEIGHTS_FOLDER)) if environ.get(TURNS_FOLDER) else None
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerEnv:
    """Environment of a sampler pod."""

    namespace: str
    job: str
    run: str
    pool: str
    pod_name: str
    pod_uid: str
    spec_file: Path
    stores_folder: Path
    weights_folder: Path
    engine_url: str
    listen_port: int
    drain_seconds: int
    """Seconds that running groups may continue after SIGTERM; less than the grace period."""
    tool_secrets_folder: Path
    """Folder with ``<MCP server>/token`` for each server that has a token."""
    endpoint_secrets_folder: Path
    """Folder with ``<token_folder of an endpoint>/token`` for each endpoint with a token, and with
    that of the search service."""
    engine_runs: int = 1
    """Number of runs whose agents share the engine, this run included."""
    engine_key_folder: Path | None = None
    """Folder with the key that the engine asks for; None: it asks for none."""
    base_folder: Path | None = None
    """Folder with the base model; None: it is in the weights folder."""
    chat_port: int | None = None
    """Loopback port of the chat endpoint for people; None: no chat."""
    gateway_port: int | None = None
    """Port of the API for programs; None: the agent is none."""
    programs: str = ""
    """``host:port`` of the pods that run programs; empty: programs run in this pod, and the API for
    them listens on loopback."""
    episode_pods: Mapping[str, str] = field(default_factory=dict)
    """``host:port`` of the pods of single episodes by image, for images beside the first."""
    environments: str = ""
    """``host:port`` of the pods that run an image of environments; empty: there are none."""
    relay_port: int | None = None
    """Port that serves policies to other samplers; None: no relay."""
    pod_ip: str = ""
    """Set only where other pods connect to this one: with a relay, or with pods for programs."""
    code_socket: Path | None = None
    """Unix socket of the container that runs user code; None: no such container."""
    hub_token_file: Path | None = None
    """File with the token for an hf:// model."""
    sandbox_socket: Path | None = None
    """Unix socket of the sandbox that runs programs; None: no sandbox."""
    turns_folder: Path | None = None
    """Folder of the socket and the gate where trainer and engine share the pod's devices by turns;
    None: the devices are the engine's own."""

    @classmethod
    def parse(cls, environ: Mapping[str, str]) -> SamplerEnv:
        """Parse the variables; raises EnvironmentVariableError when a value is invalid."""
        return cls(
            namespace=required(environ, NAMESPACE),
            job=required(environ, JOB),
            run=required(environ, RUN),
            pool=required(environ, POOL),
            pod_name=required(environ, POD_NAME),
            pod_uid=required(environ, POD_UID),
            spec_file=Path(required(environ, SPEC_FILE)),
            stores_folder=Path(required(environ, STORES_FOLDER)),
            weights_folder=Path(required(environ, WEIGHTS_FOLDER)),
            engine_url=required(environ, ENGINE_URL),
            engine_runs=count(environ, ENGINE_RUNS),
            engine_key_folder=_path(environ, ENGINE_KEY_FOLDER),
            base_folder=_path(environ, BASE_FOLDER),
            listen_port=integer(environ, LISTEN_PORT),
            chat_port=_port(environ, CHAT_PORT),
            gateway_port=_port(environ, GATEWAY_PORT),
            relay_port=_port(environ, RELAY_PORT),
            pod_ip=required(environ, POD_IP)
            if environ.get(RELAY_PORT) or environ.get(PROGRAMS)
            else "",
            programs=environ.get(PROGRAMS, ""),
            episode_pods=json.loads(environ.get(EPISODE_PODS) or "{}"),
            environments=environ.get(ENVIRONMENTS, ""),
            code_socket=_path(environ, CODE_SOCKET),
            hub_token_file=_path(environ, HUB_TOKEN_FILE),
            sandbox_socket=_path(environ, SANDBOX_SOCKET),
            turns_folder=_path(environ, TURNS_FOLDER),
            drain_seconds=integer(environ, DRAIN_SECONDS),
            tool_secrets_folder=Path(required(environ, TOOL_SECRETS_FOLDER)),
            endpoint_secrets_folder=Path(required(environ, ENDPOINT_SECRETS_FOLDER)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEnv:
    """Environment of the container ``code``."""

    spec_file: Path
    code_folder: Path | None = None
    """Folder with the user's Python modules; None: the manifest has none."""

    @classmethod
    def parse(cls, environ: Mapping[str, str]) -> CodeEnv:
        """Parse the variables; raises EnvironmentVariableError when a value is invalid."""
        return cls(
            spec_file=Path(required(environ, SPEC_FILE)),
            code_folder=_path(environ, CODE_FOLDER),
        )
