"""Adoption: a job continues the run of a deleted job (``spec.runId``).

The job claims the run with a Lease (see ``claims``), so only one of two jobs gets it. Trainers of
the same run are fenced by its epoch in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.errors import Refusal
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.metadata import Meta
from rl_operator.state.progress import Reading
from rl_operator.stores.claims import Claims

FIELD = "spec.runId"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Assigns runs to the jobs that name them."""

    cluster: Cluster
    claims: Claims

    def refusal(self, job: Meta, reading: Reading) -> Refusal | None:
        """Claim the run that the job names; return why the job may not have it, or None.

        Args:
            job: the job that names a run.
            reading: that run's progress, from a store that has answered.
        """
        run = reading.run
        if run is None or run.namespace != job.namespace:
            return _refused(
                job,
                "RunNotFound",
                "No run of this namespace has this id.",
                "Take status.runId of the job that it had, or leave the field out.",
            )
        holder = self._first_job(job, run.job)
        holder = holder or self.claims.take(_claim(job), kinds.RLJOB, job)
        if holder:
            return _refused(
                job, "RunInUse", f"RLJob {holder} has this run.", "Delete that job first."
            )
        left = self._left_behind(job)
        if left:
            message = f"Pods of its former job still exist: {', '.join(left[:5])}."
            return _refused(job, "RunInUse", message, "Wait until they have terminated.")
        return None

    def owns_run(self, job: Meta, *, attempts: int) -> bool:
        """Whether a job's run is its own, so that its data may be deleted with it.

        A job that was refused the run that it names never had it: another job trains it, or it is
        another namespace's. The claim of one that had it may be gone before the job: a foreground
        deletion takes dependents first.

        Args:
            job: the job.
            attempts: that it has begun.
        """
        if not job.adopted_run:
            return True
        holder = self.claims.holder(_claim(job), job.namespace)
        return holder == job.uid or (not holder and attempts > 0)

    def _first_job(self, job: Meta, name: str) -> str:
        """The job that the run was created for if it still exists; else empty."""
        first = self.cluster.get(kinds.RLJOB, job.namespace, name)
        return name if first is not None and first["metadata"]["uid"] == job.run else ""

    def _left_behind(self, job: Meta) -> list[str]:
        """Pods of the run from another job, or from an earlier job of the same name."""
        beside = names.beside(job.run)  # of pods in which it is not the first run
        pods: list[Meta] = []
        for labels in (f"{names.RUN_LABEL}={job.run}", beside):
            selected = self.cluster.select(kinds.POD, job.namespace, labels=labels)
            pods += [Meta.parse(pod) for pod in selected]
        return sorted(
            pod.name
            for pod in pods
            if pod.labels.get(beside, pod.labels.get(names.JOB_LABEL)) != job.name
            or pod.created_at < job.created_at
        )


def _claim(job: Meta) -> str:
    return f"run-{job.run}"


def _refused(job: Meta, reason: str, message: str, remedy: str) -> Refusal:
    return Refusal(field=FIELD, value=job.run, reason=reason, message=message, remedy=remedy)
