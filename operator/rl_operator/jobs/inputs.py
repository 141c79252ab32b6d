"""What a job depends on beyond Kubernetes: its stores, its data, samplers that know its scorers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rl_contracts.capacity.context import context_refusal
from rl_contracts.capacity.shape import longest_of
from rl_contracts.errors import Refusal
from rl_contracts.spec.data import model_of_hub
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.apply.requeue import STALLED_SECONDS
from rl_operator.attempts import start_gate
from rl_operator.attempts.start_gate import SamplerShortfall
from rl_operator.kube.conditions import Stall
from rl_operator.kube.gpu_nodes import GpuNodes
from rl_operator.kube.kinds import Key
from rl_operator.kube.settings import JobRules
from rl_operator.state import attempt_records
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status import pool_wait
from rl_operator.stores.adoption import Adoption
from rl_operator.stores.deletions import Deletions
from rl_operator.stores.preflight import Preflight, Verdict
from rl_operator.stores.run_poll import RunProgress
from rl_operator.validation import (
    device_memory,
    engine_options,
    experts,
    parallelism,
    vision_model,
)
from rl_operator.validation.device_memory import DeviceMemory
from rl_operator.validation.dry_run import DryRun
from rl_operator.validation.pool_options import of_reference
from rl_operator.validation.refusals import of_samplers, of_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is known of a job's stores, model, data and samplers."""

    reading: Reading = field(default_factory=Reading)
    bucket: str = ""
    stall: Stall | None = None
    checked: bool = False
    """Stores, model and data have passed their checks."""
    checking: bool = False
    """The checks are still running."""
    unusable: bool = False
    """The spec cannot be rendered: nothing is applied."""
    may_begin: bool = False
    """Nothing of all this keeps an attempt from beginning."""
    shortfalls: tuple[SamplerShortfall, ...] = ()
    """Groups with fewer samplers than a start asks for."""
    memory: DeviceMemory | None = None
    """Whether the training fits its devices; None: not known, or not asked for again."""
    check_after: float | None = None
    """Seconds until another check is worth it; None: nothing has to be checked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsReader:
    """Checks and reads the inputs of jobs."""

    deletions: Deletions
    progress: RunProgress
    preflight: Preflight
    dry_run: DryRun
    adoption: Adoption
    gpus: GpuNodes
    now: Callable[[], float]
    """Seconds since 1970."""
    rules: JobRules

    def forget(self, key: Key) -> None:
        """Check a job's inputs again from the beginning."""
        self.preflight.forget(key)

    def drop(self, key: Key) -> None:
        """Drop what is kept of a deleted job."""
        self.preflight.forget(key)
        self.progress.forget(key)
        self.deletions.forget(key)

    def stop_polling(self, key: Key) -> None:
        """Poll no longer what does not matter: the run of a job that is over or suspended."""
        self.progress.forget(key)

    def of_idle(self, snapshot: JobSnapshot, spec: RLJobSpec) -> Inputs:
        """Check a suspended job without pods as any other, so that its errors are known now.

        Its run is not polled, and nothing is made for it.
        """
        self.stop_polling(snapshot.key)
        stall, verdict = self._of_spec(snapshot, spec), Verdict(passed=True)
        if stall is None and _needs_check(snapshot):
            verdict = self.preflight.verdict(snapshot.key, spec, begun=snapshot.job.started)
        memory, verdict = self._of_model(spec, verdict)
        refusal = next(iter(verdict.refusals), None)
        return Inputs(
            stall=stall or (Stall.of(refusal) if refusal else None),
            checking=not verdict.passed and refusal is None,
            unusable=stall is not None,
            memory=memory,
            check_after=_check_after(verdict, stall),
        )

    def read(self, snapshot: JobSnapshot, spec: RLJobSpec, *, fresh: bool = False) -> Inputs:
        """Return what is known now; waits a few seconds at most.

        With ``fresh`` the run is read after the snapshot was taken.
        """
        key, meta = snapshot.key, snapshot.job.meta
        stall = self._of_spec(snapshot, spec)
        reading = self.progress.read(key, meta.run, spec.storage.secret_name, fresh=fresh)
        verdict = Verdict(passed=True)
        if stall is None and _needs_check(snapshot):
            verdict = self.preflight.verdict(key, spec, begun=snapshot.job.started)
        memory, verdict = self._of_model(spec, verdict)
        unusable = stall is not None
        has_run, refused = True, None
        if _adopts(snapshot, spec):
            has_run, refused = self._adopt(snapshot, reading, ask=verdict.passed and not unusable)
            reading = reading if has_run else reading.of_no_run()
        shortfalls = start_gate.find_shortfalls(snapshot, spec, reading)
        stall = (
            stall
            or next(
                (Stall.of(refusal) for refusal in (*verdict.refusals, refused) if refusal), None
            )
            or pool_wait.stall(snapshot, spec, now=self.now())
            or self._of_samplers(snapshot, spec, reading, shortfalls)
        )
        return Inputs(
            reading=reading,
            bucket=reading.bucket_name,
            stall=stall,
            checked=verdict.passed and not unusable and has_run,
            checking=not verdict.passed and stall is None,
            unusable=unusable,
            may_begin=verdict.passed
            and stall is None
            and has_run
            and not (shortfalls and _starts(snapshot)),
            shortfalls=shortfalls if _starts(snapshot) else (),
            memory=memory,
            check_after=_check_after(verdict, stall),
        )

    def refuses_pods(self, snapshot: JobSnapshot) -> bool:
        """Whether the API server refuses the pods of a job's spec."""
        job = snapshot.job
        return job.spec is not None and self._refused_pods(snapshot, job.spec) is not None

    def _refused_pods(self, snapshot: JobSnapshot, spec: RLJobSpec) -> Refusal | None:
        return self.dry_run.refusal(snapshot.job.meta, spec, trainer_kind=snapshot.has_trainer_kind)

    def _of_model(self, spec: RLJobSpec, verdict: Verdict) -> tuple[DeviceMemory | None, Verdict]:
        """Whether context, mesh and devices suit the model; a passed verdict is refused if not."""
        if not verdict.passed or not verdict.model:
            return None, verdict
        refusal = (
            context_refusal(spec, longest_of(verdict.model))
            or next(vision_model.refusals(spec, verdict.model), None)
            or parallelism.of_model(spec, verdict.model)
            or experts.of_model(spec, verdict.model)
            or engine_options.of_model(spec, verdict.model)
        )
        if refusal is not None:
            return None, Verdict(refusals=(refusal,), retry_after=STALLED_SECONDS)
        trainer = spec.trainer
        asks = spec.training.memory.device_gib is None and trainer.gpus > 0
        labelled = self.gpus.memory_gib(trainer.node_selector) if asks else None
        memory = device_memory.of_job(spec, verdict.model, verdict.others, labelled_gib=labelled)
        if memory is None or memory.refusal is None:
            return memory, verdict
        return memory, Verdict(refusals=(memory.refusal,), retry_after=STALLED_SECONDS)

    def _of_spec(self, snapshot: JobSnapshot, spec: RLJobSpec) -> Stall | None:
        """Why the spec cannot be rendered; None if it can."""
        refusals = of_spec(spec, self.rules, started=snapshot.job.started)
        refusal = next(refusals, None) or next(of_reference(spec, snapshot.shared), None)
        refusal = refusal or self._refused_pods(snapshot, spec)
        if refusal is not None:
            return Stall.of(refusal)
        return None if snapshot.has_trainer_kind else NO_TRAINING_OPERATOR

    def _adopt(
        self, snapshot: JobSnapshot, reading: Reading, *, ask: bool
    ) -> tuple[bool, Refusal | None]:
        """Whether the job has the run that it names, and if not, why."""
        if not ask or not reading.known:
            return False, None
        refusal = self.adoption.refusal(snapshot.job.meta, reading)
        return refusal is None, refusal

    def _of_samplers(
        self,
        snapshot: JobSnapshot,
        spec: RLJobSpec,
        reading: Reading,
        shortfalls: tuple[SamplerShortfall, ...],
    ) -> Stall | None:
        current = start_gate.current_samplers(snapshot, spec, reading)
        refusal = next(of_samplers(spec, current), None)
        if refusal is not None:
            return Stall.of(refusal)
        since = start_gate.waits_since(snapshot)
        if not shortfalls or since is None or not _starts(snapshot) or not reading.known:
            return None
        limit = spec.lifecycle.pending_deadline_seconds
        if self.now() - since <= limit:
            return None
        trouble = snapshot.sampler_trouble() or _silent(spec)
        message = (
            f"spec.lifecycle.pendingDeadlineSeconds = {limit}: too few samplers have registered "
            f"by then: {start_gate.describe(shortfalls)}. {trouble}"
        )
        return Stall(reason="SamplersNotRegistered", message=message)


NO_TRAINING_OPERATOR = Stall(
    reason="TrainingOperatorMissing",
    message="The cluster has no PyTorchJob kind. Install Kubeflow training-operator 1.9.",
)


def _needs_check(snapshot: JobSnapshot) -> bool:
    status = snapshot.job.status
    return status.attempt == 0 or attempt_records.refused(status)


def _adopts(snapshot: JobSnapshot, spec: RLJobSpec) -> bool:
    """Whether the job names a run that it may not have yet."""
    return bool(spec.run_id) and snapshot.job.status.attempt == 0


def _starts(snapshot: JobSnapshot) -> bool:
    return start_gate.applies(snapshot.job.status)


def _silent(spec: RLJobSpec) -> str:
    if model_of_hub(spec.model):
        return "A pod downloads spec.model into the bucket: see the log of its container stage."
    return "Their pods report no cause; see their logs."


def _check_after(verdict: Verdict, stall: Stall | None) -> float | None:
    if verdict.retry_after is not None:
        return verdict.retry_after
    return STALLED_SECONDS if stall is not None else None
