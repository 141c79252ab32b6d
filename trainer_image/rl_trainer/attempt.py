"""One attempt: takes the run's epoch, trains, and writes how it ended where that is possible."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from pydantic import ValidationError
from transformers.utils.logging import disable_progress_bar

from rl_contracts.documents.run import Holder, Outcome, Run
from rl_contracts.env import TrainerEnv
from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    FencedOutError,
    LateAttemptError,
    ObjectMissingError,
    Refusal,
    RefusedError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.spec.parallelism import mesh_sizes
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores import upgrade
from rl_contracts.stores.clients.deployment import warning
from rl_contracts.stores.clients.mongo_errors import STORE
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer import loop, standalone
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job
from rl_trainer.distributed import processors, rendezvous
from rl_trainer.distributed.team import Team, rank_loss_as_failure
from rl_trainer.errors import (
    BrokenOffError,
    TerminatedError,
    TrainingFailedError,
    reason_of,
)
from rl_trainer.follower import Follower
from rl_trainer.rollouts import leftovers
from rl_trainer.tracking import endpoint

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""Longest time that each call retries while a store is down, e.g. restarted."""
INDEX_BUILD_SECONDS = 3600.0
"""A new index of a large collection; another attempt would wait for the same build."""
SUCCEEDED, FAILED, REFUSED, FENCED_OUT, TOO_LATE, TERMINATED = 0, 1, 2, 3, 4, 143
UNTRAINED: dict[str, Callable[[Job, Run], Outcome]] = {
    "Evaluation": standalone.measure,
    "Sampling": standalone.fill,
}
"""By the manifest's ``algorithm.objective``; under all others ``loop.train``."""
EXIT_CODES = {"Succeeded": SUCCEEDED, "Failed": FAILED, "Refused": REFUSED}


def connect_patiently(settings: StoreSettings) -> Stores:
    """The stores; each call retries for as long as a restart of theirs may take."""
    return Stores.connect(settings, patience_seconds=PATIENCE_SECONDS)


def run(
    env: TrainerEnv,
    *,
    terminated: threading.Event,
    connect: Callable[[StoreSettings], Stores] = connect_patiently,
    scratch: Path | None = None,
) -> int:
    """Make one attempt; return the exit code of the process.

    Of several ranks, rank 0 makes it and the others follow; all end with the same code.

    Args:
        env: the pod's environment.
        terminated: set when the pod gets SIGTERM.
        connect: makes the stores' clients.
        scratch: parent of the scratch folder; default the system's.
    """
    _compute(env)
    return _exit_code(lambda: _join(env, terminated=terminated, connect=connect, scratch=scratch))


def _join(
    env: TrainerEnv,
    *,
    terminated: threading.Event,
    connect: Callable[[StoreSettings], Stores],
    scratch: Path | None,
) -> int:
    """Join the other ranks, run, and have them end with the same code."""
    spec, settings = _spec(env), StoreSettings.from_folder(env.stores_folder)
    key = settings.shared_token(f"ranks/{env.run}/{env.attempt}")
    sizes = mesh_sizes(spec.trainer.parallelism, env.size)
    world = rendezvous.join(env, sizes, key=key, terminated=terminated)
    team = Team(world=world, terminated=terminated)
    code = _exit_code(lambda: _run(env, spec, settings, team, connect=connect, scratch=scratch))
    if world.leads:
        team.end(code)
    return code


def _run(
    env: TrainerEnv,
    spec: RLJobSpec,
    settings: StoreSettings,
    team: Team,
    *,
    connect: Callable[[StoreSettings], Stores],
    scratch: Path | None,
) -> int:
    with (
        contextlib.closing(connect(settings)) as stores,
        # An abandoned upload may still write there; the folder goes with the pod's disk.
        tempfile.TemporaryDirectory(
            dir=scratch, prefix="trainer-", ignore_cleanup_errors=True
        ) as folder,
    ):
        if not team.world.leads:
            return _follow(env, team, stores, folder=Path(folder))
        return _attempt(env, spec, stores, folder=Path(folder), team=team)


def _exit_code(act: Callable[[], int]) -> int:
    """The exit code that ``act`` returns, or that of the error with which it ended."""
    try:
        return act()
    except FencedOutError as error:
        log.warning("%s", error)
        return FENCED_OUT
    except LateAttemptError as error:
        log.warning("%s", error)
        return TOO_LATE
    except TerminatedError as error:
        log.warning("%s", error)
        return TERMINATED
    except (RefusedError, AccessDeniedError, CommandRefusedError) as error:
        log.error("refused; the run's document cannot be updated: %s", error)
        return REFUSED
    except (StoreUnavailableError, TrainingFailedError) as error:
        log.error("%s", error)
        return FAILED


def _attempt(
    env: TrainerEnv,
    spec: RLJobSpec,
    stores: Stores,
    *,
    folder: Path,
    team: Team,
) -> int:
    run = _take(env, spec, stores)
    if run is None:
        log.info("run %s has succeeded already", env.run)
        leftovers.put_away(stores, env.run)
        return SUCCEEDED
    heartbeat = Heartbeat(stores, run=env.run, epoch=run.epoch, terminated=team.terminated)
    job = Job(
        name=env.job,
        run=env.run,
        epoch=run.epoch,
        spec=spec,
        stores=stores,
        heartbeat=heartbeat,
        folder=folder,
        hub_token_file=env.hub_token_file,
        tracking_folder=env.tracking_folder,
        turns_folder=env.turns_folder,
        weights_folder=env.weights_folder,
        team=team,
    )
    heartbeat.watch(team.check)  # from the start: reading data may take longer than ranks wait
    log.info("run %s: epoch %d, from step %d", env.run, run.epoch, run.step)
    with heartbeat, endpoint.serving(env.listen_port, page=lambda: job.figures.page):
        outcome = _outcome(job, run)
    log.log(
        logging.INFO if outcome.kind == "Succeeded" else logging.ERROR,
        "%s: %s: %s %s",
        outcome.kind,
        outcome.reason,
        outcome.message,
        outcome.remedy,
    )
    stores.runs.finish(env.run, epoch=run.epoch, outcome=outcome)
    if outcome.kind == "Succeeded":
        leftovers.put_away(stores, env.run)
    return EXIT_CODES[outcome.kind]


def _follow(env: TrainerEnv, team: Team, stores: Stores, *, folder: Path) -> int:
    """Follow rank 0 until it ends."""
    try:
        with rank_loss_as_failure():
            return Follower(team, stores, folder, weights_folder=env.weights_folder).follow()
    except BrokenOffError as error:
        log.error("rank %d: %s", team.world.rank, error)
        return FAILED


def _take(env: TrainerEnv, spec: RLJobSpec, stores: Stores) -> Run | None:
    """Take the run's epoch; None when the run has succeeded already."""
    warned = warning(stores.mongo.deployment())
    if warned is not None:
        log.warning("%s", warned.message)
    stores.mongo.ensure_indexes(build_seconds=INDEX_BUILD_SECONDS)
    migrated = upgrade.begin(stores.mongo, env.run)
    if migrated is not None:
        log.info(
            "migrated %d documents of run %s to this release's schema", migrated.written, env.run
        )
    existing = stores.runs.get(env.run)
    if existing is None:
        stores.runs.create(
            Run(
                id=env.run,
                namespace=env.namespace,
                job=env.job,
                created_at=stores.mongo.now(),
                steps=spec.training.steps or 0,
            )
        )
    elif existing.outcome is not None and existing.outcome.kind == "Succeeded":
        return None
    holder = Holder(job=env.job_uid, attempt=env.attempt)
    run = stores.runs.take_epoch(env.run, holder=holder)
    if run.outcome is not None and run.outcome.kind == "Succeeded":
        return None  # the previous trainer finished in between
    if run.outcome is not None:
        stores.runs.clear_outcome(env.run, epoch=run.epoch)
    return run


def _outcome(job: Job, run: Run) -> Outcome:
    """Train; errors that the run's document can record become its outcome."""
    try:
        _check_bucket(job)
        return UNTRAINED.get(job.spec.algorithm.objective, loop.train)(job, run)
    except RefusedError as error:
        return Outcome.refused(error.refusal)
    except AccessDeniedError as error:
        return Outcome.refused(_forbidden(job, error))
    except CommandRefusedError as error:
        return Outcome.refused(_impossible(job, error))
    except BrokenOffError as error:
        return Outcome(kind="Failed", reason=error.reason, message=str(error))
    except RLError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        if isinstance(error, StoreUnavailableError) and error.store == STORE:
            raise  # it cannot store an outcome either
        return Outcome(kind="Failed", reason=reason, message=str(error))


def _check_bucket(job: Job) -> None:
    try:
        job.stores.objects.check()
    except ObjectMissingError as error:
        raise RefusedError(
            Refusal(
                field="spec.storage.secretName",
                value=job.spec.storage.secret_name,
                reason="BucketNotFound",
                message=f"{error}.",
                remedy="Create the bucket, or name another one in the Secret.",
            )
        ) from error


def _forbidden(job: Job, error: AccessDeniedError) -> Refusal:
    return Refusal(
        field="spec.storage.secretName",
        value=job.spec.storage.secret_name,
        reason="AccessDenied",
        message=f"{error.what}.",
        remedy=error.remedy or "Put credentials into the Secret that may read and write there.",
    )


def _impossible(job: Job, error: CommandRefusedError) -> Refusal:
    return Refusal(
        field="spec.storage.secretName",
        value=job.spec.storage.secret_name,
        reason="StoreRefused",
        message=f"{error.what}.",
        remedy=error.remedy,
    )


def _spec(env: TrainerEnv) -> RLJobSpec:
    try:
        return RLJobSpec.model_validate_json(env.spec_file.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RefusedError(
            Refusal(
                field="spec." + ".".join(map(str, first["loc"])),
                value=str(first["input"])[:200],
                reason="SpecMalformed",
                message=f"{first['msg']}.",
                remedy="Use the operator and the trainer image of one release.",
            )
        ) from error


def _compute(env: TrainerEnv) -> None:
    disable_progress_bar()  # a log is no terminal
    processors.limit_threads(processes=env.processes)
    # Replaying a step must give the weights that it gave before, bit for bit.
    torch.use_deterministic_algorithms(not torch.cuda.is_available())
