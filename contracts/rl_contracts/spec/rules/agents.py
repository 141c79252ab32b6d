"""Rules on agents, and on what they need of samplers, scorers and data, in CEL."""

from __future__ import annotations

from rl_contracts.spec.base import rule

SOURCES = {
    "train": "(has(self.data.train) ? self.data.train : [])",
    "validation": "self.data.validation",
    "test": "self.data.test",
}
"""CEL for each list of sources."""

OF_AGENTS = (
    rule(
        "!has(self.agent.program) || !self.agent.program.replayable || "
        "self.algorithm.experts.routing != 'Replay'",
        "agent.program.replayable gives responses again without the experts that were chosen for "
        "them, which algorithm.experts.routing Replay needs: remove one of them",
        field="agent.program.replayable",
    ),
    rule(
        "!has(self.agent.environment) || !has(self.agent.environment.image) || "
        "!self.samplers.exists(sampler, has(sampler.poolRef))",
        "agent.environment.image is set, and shared pools (samplers[].poolRef) have no pods for "
        "environments: use samplers of the job's own, or run the server yourself and set url",
        field="agent.environment.image",
    ),
    rule(
        "!has(self.agent.program) || self.agent.program.runsIn == 'Sidecar' || "
        "!self.samplers.exists(sampler, has(sampler.poolRef))",
        "agent.program.runsIn is {self.agent.program.runsIn}, and shared pools "
        "(samplers[].poolRef) have no pods for "
        "programs: use samplers of the job's own, or runsIn: Sidecar for code that you trust",
        field="agent.program.runsIn",
    ),
    rule(
        "!has(self.agent.program) || self.agent.program.runsIn != 'EpisodePod' || "
        "self.scheduling.provider != 'Kueue' || self.scheduling.samplerQuota == 'None'",
        "agent.program.runsIn is EpisodePod, and the quota of scheduling.provider Kueue would not "
        "count these pods: use runsIn: Pod, or set scheduling.samplerQuota to None",
        field="agent.program.runsIn",
    ),
    rule(
        "self.?agent.program.images.orValue([]).size() == 0 || "
        + " || ".join(
            f"{sources}.exists(source, source.?format.orValue('Records') == 'Harbor')"
            for sources in SOURCES.values()
        ),
        "agent.program.images are images of Harbor tasks, and no source of data has format Harbor: "
        "remove them",
        field="agent.program.images",
    ),
    rule(
        "self.reward.scorers.all(scorer, !(scorer.kind in ['Program', 'Environment']) || "
        "scorer.kind == self.agent.kind || has(scorer.entryPoint) || has(scorer.judge))",
        "reward.scorers has kind Program, the reward that a program posts, or Environment, and "
        "agent.kind is {self.agent.kind}: remove the scorer, or use the agent.kind of its name",
        field="reward.scorers",
    ),
    rule(
        "!has(self.sandbox) || self.agent.kind == 'Code' || "
        "'Python' in self.agent.builtInTools || self.reward.scorers.exists(scorer, "
        "scorer.kind == 'Code' && !has(scorer.entryPoint) && !has(scorer.judge))",
        "spec.sandbox is set, and nothing of this job runs programs: remove it, or use agent.kind "
        "Code, agent.builtInTools [Python] or a scorer of kind Code",
        field="sandbox",
    ),
    *(
        rule(
            f"self.agent.kind == 'Conversation' || {sources}.all(source, "
            "!has(source.columns) || !has(source.columns.scenario))",
            f"data.{name}[].columns.scenario is for agent.kind Conversation, and agent.kind is "
            "{self.agent.kind}: remove it or change the kind",
            field=f"data.{name}",
        )
        for name, sources in SOURCES.items()
    ),
    *(
        rule(
            "self.agent.kind != 'Conversation' || has(self.agent.user) || "
            f"{sources}.all(source, has(source.columns) && has(source.columns.scenario))",
            f"data.{name}[].columns.scenario is unset and so is agent.user: under agent.kind "
            "Conversation name the column with the user's further turns, or set agent.user",
            field=f"data.{name}",
        )
        for name, sources in SOURCES.items()
    ),
    *(
        rule(
            f"{sources}.all(source, source.?format.orValue('Records') != 'Harbor') || "
            "self.?agent.program.runsIn.orValue('') == 'EpisodePod'",
            f"data.{name}[].format is Harbor, whose tasks each need a pod of their own: set "
            "agent.kind to Program and agent.program.runsIn to EpisodePod",
            field=f"data.{name}",
        )
        for name, sources in SOURCES.items()
    ),
)
"""Rules of an RLJob, which has the sections that they compare."""
