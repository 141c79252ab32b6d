"""Rules of a SamplerPool, in CEL, for the API server."""

from __future__ import annotations

from rl_contracts.spec.base import rule
from rl_contracts.spec.data import COMMIT

OF_POOL = (
    rule(
        "has(self.job) != has(self.model)",
        "set exactly one of spec.job, for a pool of one job, and spec.model, for a pool that jobs "
        "share",
    ),
    rule(
        "has(self.job) == has(oldSelf.job) && "
        "(!has(self.model) || !has(oldSelf.model) || self.model == oldSelf.model)",
        "spec.model cannot change, nor can a pool of a job become a shared one: make a new pool",
    ),
    rule(
        "has(self.model) || self.maxRuns == 1",
        "spec.maxRuns is for a pool that jobs share: remove it, or set model instead of job",
        field="maxRuns",
    ),
    rule(
        "has(self.job) || !has(self.admitted)",
        "spec.admitted is for the pool of a job, and the operator sets it: remove it, and set "
        "replicas to limit a pool that jobs share",
        field="admitted",
    ),
    rule(
        "self.maxRuns > 1 || self.networkPolicy == 'RunOnly'",
        "spec.networkPolicy is for a pool with maxRuns above 1: set it in the job instead",
        field="networkPolicy",
    ),
    rule(
        "self.managedBy == oldSelf.managedBy",
        "spec.managedBy cannot change: make a new pool",
        field="managedBy",
    ),
    rule(
        "has(self.model) || self.managedBy == 'rl-operator.io/operator'",
        "spec.managedBy is for a pool that jobs share: a pool of a job goes with the job; "
        "remove it",
        field="managedBy",
    ),
    rule(
        "self.maxRuns == 1 || self.template.autoscaling.mode != 'Builtin'",
        "spec.template.autoscaling.mode Builtin judges by one run, and maxRuns is "
        "{self.maxRuns}: use mode None and /scale, which an HPA or KEDA may set, or maxRuns 1",
        field="template.autoscaling.mode",
    ),
    rule(
        "self.maxRuns == 1 || !has(self.model) || !self.model.uri.startsWith('hf://') || "
        f"self.model.uri.matches('@{COMMIT}$') || "
        f"(has(self.model.revision) && self.model.revision.matches('^{COMMIT}$'))",
        "spec.model.uri must name a commit with maxRuns above 1, for runs that start at "
        "different times must have the same model: write {self.model.uri.split('@')[0]}@<40 "
        "hexadecimal digits> in the pool and in its jobs",
        field="model.uri",
    ),
    rule(
        "self.maxRuns == 1 || !has(self.model) || !has(self.model.tokenizerUri) || "
        "!self.model.tokenizerUri.startsWith('hf://') || "
        f"self.model.tokenizerUri.matches('@{COMMIT}$')",
        "spec.model.tokenizerUri must name a commit with maxRuns above 1, for runs that start "
        "at different times must have the same tokenizer: append @<40 hexadecimal digits>",
        field="model.tokenizerUri",
    ),
)
"""Rules on pools of one job and on pools that jobs share."""
