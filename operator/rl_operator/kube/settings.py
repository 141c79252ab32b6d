"""The operator's settings: its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Default images of pods."""

    operator: str
    """Of the readers."""
    trainer: str
    sampler: str
    engine: str
    pull_policy: str
    pull_secrets: tuple[str, ...] = ()
    """Names of image pull Secrets in the jobs' namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """What the cluster's administrator lets jobs do; a job that does otherwise is refused."""

    service_accounts: tuple[str, ...] = ()
    """Names that pods may use beside ``default``; ``*``: any."""
    unrestricted_pods: bool = False
    """Whether ``podTemplate`` may give pods more rights than the operator does."""
    digests_required: bool = False
    """Whether images of a spec must have a digest."""
    queue_required: bool = False
    """Whether a queue must admit all pods of a job."""
    agent_sandbox: bool = False
    """Whether agent-sandbox may make pods of episodes: the chart grants the permissions."""


DEFAULT_RULES = JobRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings."""

    namespace: str
    """Namespace of the operator and its Lease."""
    identity: str
    """Holder of the Lease: unique among the operator's pods."""
    watch_namespaces: tuple[str, ...]
    """Empty: the whole cluster."""
    images: Images
    rules: JobRules
    progress_seconds: float
    """Shortest interval between two reads, and two writes, of a running job's counters."""
    workers: int
    """Number of objects that are reconciled at the same time."""
    kueue: bool
    """Whether jobs may use Kueue: the chart grants the permissions."""
    watch_silence_seconds: float
    """The process ends when a watch has been silent this long."""
    listen_port: int
    """Port of /healthz, /readyz and /metrics."""
    data_port: int
    """Port at which viewers ask for data of runs; 0: none."""
    log_level: str


def parse(arguments: Sequence[str]) -> Settings:
    """Parse the command line; exits with a message on a bad one."""
    parser = argparse.ArgumentParser(prog="rl_operator", description="The rl-operator.")
    parser.add_argument("--namespace", required=True, help="namespace of the operator's Lease")
    parser.add_argument("--identity", required=True, help="name of this pod")
    parser.add_argument(
        "--watch-namespace", action="append", default=[], help="repeatable; default: all namespaces"
    )
    parser.add_argument("--operator-image", required=True, help="of the pods that read stores")
    parser.add_argument("--trainer-image", required=True)
    parser.add_argument("--sampler-image", required=True)
    parser.add_argument("--engine-image", required=True)
    parser.add_argument(
        "--image-pull-policy", default="IfNotPresent", choices=["Always", "IfNotPresent", "Never"]
    )
    parser.add_argument(
        "--image-pull-secret",
        action="append",
        default=[],
        help="image pull Secret of the jobs' pods; repeatable",
    )
    parser.add_argument(
        "--service-account",
        action="append",
        default=[],
        help="service account that pods of jobs may use beside default; repeatable; *: any",
    )
    parser.add_argument(
        "--allow-unrestricted-pods", action="store_true", help="let podTemplate loosen security"
    )
    parser.add_argument(
        "--require-digests", action="store_true", help="refuse images of a spec without a digest"
    )
    parser.add_argument(
        "--require-queue", action="store_true", help="refuse jobs that Kueue does not admit"
    )
    parser.add_argument("--progress-seconds", type=_seconds, default=5.0)
    parser.add_argument("--workers", type=_positive, default=8)
    parser.add_argument("--kueue", action="store_true", help="allow jobs to use Kueue")
    parser.add_argument(
        "--agent-sandbox", action="store_true", help="allow jobs to use agent-sandbox"
    )
    parser.add_argument("--watch-silence-seconds", type=_positive, default=180)
    parser.add_argument("--listen-port", type=_positive, default=8080)
    parser.add_argument(
        "--data-port", type=int, default=0, help="port for viewers of runs; 0: none"
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING"])
    given = parser.parse_args(arguments)
    return Settings(
        namespace=given.namespace,
        identity=given.identity,
        watch_namespaces=tuple(given.watch_namespace),
        images=Images(
            operator=given.operator_image,
            trainer=given.trainer_image,
            sampler=given.sampler_image,
            engine=given.engine_image,
            pull_policy=given.image_pull_policy,
            pull_secrets=tuple(given.image_pull_secret),
        ),
        rules=JobRules(
            service_accounts=tuple(given.service_account),
            unrestricted_pods=given.allow_unrestricted_pods,
            digests_required=given.require_digests,
            queue_required=given.require_queue,
            agent_sandbox=given.agent_sandbox,
        ),
        progress_seconds=given.progress_seconds,
        workers=given.workers,
        kueue=given.kueue,
        watch_silence_seconds=given.watch_silence_seconds,
        listen_port=given.listen_port,
        data_port=given.data_port,
        log_level=given.log_level,
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 60 seconds")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value
