"""Creates and updates the objects of a job, and deletes those that it must not have."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.apply.applier import Applier, Made
from rl_operator.jobs import unrenderable_job
from rl_operator.jobs.render_inputs import is_settled, render_inputs
from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.metadata import Child
from rl_operator.kube.plan import Wanted
from rl_operator.kube.settings import Images
from rl_operator.kueue.gate import Gate
from rl_operator.process.events import EventRecorder, of_actions
from rl_operator.render import job as desired
from rl_operator.render import objects
from rl_operator.state import observe
from rl_operator.state.decisions import Decision
from rl_operator.state.snapshot import JobSnapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChildApplier:
    """Applies jobs' objects where something differs, and records events of it."""

    cluster: Cluster
    applier: Applier
    events: EventRecorder
    images: Images

    def make(
        self,
        snapshot: JobSnapshot,
        gate: Gate,
        decision: Decision,
        *,
        checked: bool,
    ) -> Made:
        """Apply the objects of a job whose gate grants it a spec.

        Args:
            snapshot: the job and the objects that exist.
            gate: what the job may have now.
            decision: the next step of its attempts.
            checked: inputs have passed their checks, so that samplers may start.

        Raises:
            ApiConflictError: an object has changed since it was observed.
        """
        assert gate.spec is not None
        run_trainer = desired.runs_trainer(snapshot, decision)
        source = render_inputs(snapshot, gate, checked=checked, run_trainer=run_trainer)
        wanted: list[Wanted] = []
        unwanted = [*desired.unwanted(snapshot, gate.spec), *([gate.drop] if gate.drop else [])]
        if not self.applier.rests(snapshot.key, source):
            wanted = self._wanted(snapshot, gate.spec, gate, checked, run_trainer)
            gone = objects.of_job_not_wanted(snapshot.job.meta, gate.spec)
            unwanted += observe.named(self.cluster, snapshot.key, gone)
        settled = is_settled(snapshot, wanted)
        made = self._apply(snapshot, wanted, unwanted, settled=settled)
        if not made.done and not made.hindered:
            self.applier.rested(snapshot.key, source)
        return made

    def _wanted(
        self, snapshot: JobSnapshot, spec: RLJobSpec, gate: Gate, checked: bool, run_trainer: bool
    ) -> list[Wanted]:
        children = desired.wanted(
            snapshot,
            spec,
            checked=checked,
            run_trainer=run_trainer,
            images=self.images,
            admitted=gate.sizes,
        )
        if gate.make is not None and checked:
            children.append(Wanted(manifest=gate.make, immutable=True))
        return children

    def stop(self, snapshot: JobSnapshot, gate: Gate) -> Made:
        """Delete what must not go on of a job whose objects cannot be rendered."""
        unwanted = unrenderable_job.unwanted(snapshot)
        if gate.drop is not None and gate.drop not in unwanted:
            unwanted.append(gate.drop)
        made = self._apply(snapshot, unrenderable_job.wanted(snapshot), unwanted)
        self._make_spec_configs(snapshot)
        return made

    def _make_spec_configs(self, snapshot: JobSnapshot) -> None:
        """Make the ConfigMaps that sampler pods read: pools render pods that name them.

        An edit, or a later release, changes their names. The job's status already says why nothing
        else is made, so that a failure is only logged.
        """
        job = snapshot.job
        if job.spec is None or job.suspended or not snapshot.pools:
            return
        made = self._apply(snapshot, desired.sampler_configs(job.meta, job.spec), [])
        if made.stall is not None:
            log.warning("not made: %s", made.stall.message)

    def clear(self, snapshot: JobSnapshot) -> Made:
        """Delete what a finished job does not need.

        Samplers that stay keep their ConfigMaps: a later release may read one of another name.
        """
        spec = snapshot.job.spec
        made = self._apply(snapshot, [], desired.unwanted(snapshot, spec))
        if spec is not None and snapshot.samplers_stay:
            configs = desired.sampler_configs(snapshot.job.meta, spec)
            made = made.then(self._apply(snapshot, configs, []))
        return made

    def _apply(
        self,
        snapshot: JobSnapshot,
        wanted: Sequence[Wanted],
        unwanted: Sequence[Child],
        *,
        settled: bool = False,
    ) -> Made:
        made = self.applier.make(
            snapshot.key,
            wanted=wanted,
            unwanted=unwanted,
            observed=snapshot.children,
            owner_uid=snapshot.job.meta.uid,
            begun=snapshot.job.status.observed_generation >= 0,
            settled=settled,
        )
        if made.outage is not None:
            log.warning("not made: %s", made.outage)
        self.events.record(snapshot.job.meta, kinds.RLJOB, of_actions(made.done))
        return made
