"""A job that goes on with the run of a job that is gone: ``spec.runId``.

A Lease of the namespace, owned by the job, says who has the run: made or taken over in one write,
so that of two jobs one gets it. Trainers of the same run are fenced by its epoch in any case.
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
    """Gives runs to jobs."""

    cluster: Cluster
    claims: Claims

    def refusal(self, job: Meta, reading: Reading) -> Refusal | None:
        """Why the job may not have the run that it names, if it may not; else it has it.

        Args:
            job: which names a run.
            reading: of that run, from a store that has answered.
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
        holder = holder or self.claims.take(f"run-{job.run}", kinds.RLJOB, job)
        if holder:
            return _refused(
                job, "RunInUse", f"RLJob {holder} has this run.", "Delete that job first."
            )
        left = self._left_behind(job)
        if left:
            message = f"Pods of its former job are still there: {', '.join(left[:5])}."
            return _refused(job, "RunInUse", message, "Wait until they have gone.")
        return None

    def _first_job(self, job: Meta, name: str) -> str:
        """The job that the run was made for, if that is still there; empty if not."""
        found = self.cluster.get(kinds.RLJOB, job.namespace, name)
        return name if found is not None and found["metadata"]["uid"] == job.run else ""

    def _left_behind(self, job: Meta) -> list[str]:
        """Pods of the run that another job has made, or an earlier one of the same name."""
        beside = names.beside(job.run)  # of pods in which it is not the first run
        found: list[Meta] = []
        for labels in (f"{names.RUN_LABEL}={job.run}", beside):
            there = self.cluster.select(kinds.POD, job.namespace, labels=labels)
            found += [Meta.parse(one) for one in there]
        return sorted(
            one.name
            for one in found
            if one.labels.get(beside, one.labels.get(names.JOB_LABEL)) != job.name
            or one.created_at < job.created_at
        )


def _refused(job: Meta, reason: str, message: str, remedy: str) -> Refusal:
    return Refusal(field=FIELD, value=job.run, reason=reason, message=message, remedy=remedy)
