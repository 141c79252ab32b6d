"""What asynchrony gains on the demo's own task where something outside of the engine takes 2 s.

The demo's RLJob runs twice on the cluster that ``make demo`` has left: real operator, trainer,
agents, engines and stores. A scorer of ``spec.code`` beside its own answers after 2 s, as a slow
tool would. Once it runs synchronously (``maxStaleness: 0``), once with a staleness of 4; nothing
else differs.

One sampler, so that trainer and engine can have a core each, as they have processors of their own
elsewhere. ``--samplers 2`` is what the demo starts with: three that compute share two cores then,
and what they compute, which asynchrony does not hide, is all that is left of a step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.support.result import Result
from rl_console.cluster.kube import Cluster
from rl_console.demo.settings import NAMESPACE
from rl_console.report import read_metrics
from rl_console.tools import Tools
from rl_contracts.documents.step_metrics import StepMetrics
from tests.cluster.conftest import rl_local
from tests.cluster.lab import Lab
from tests.cluster.manifests import job

NAME, CODE = "asynchrony", "asynchrony-code"
TOOL_SECONDS, STALENESS, BAR = 2.0, 4, 2.0
WARM_STEPS = 3
"""The first ones fill queues and caches; they are left out."""
AT_ONCE = 64
"""Groups of a sampler: groups that wait for the scorer need no engine."""
LIMIT_SECONDS = 900.0
SLOW = {"kind": "Slow", "weight": 0, "entryPoint": "slow:slow"}
MODULE = f"""
import asyncio

async def slow(response):
    await asyncio.sleep({TOOL_SECONDS})
    return 0.0
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--samplers", type=int, default=1, help="of either run")
    given = parser.parse_args()
    steps = 10 if given.quick else 30
    result, lab = Result("asynchrony"), connected()
    result.figures["samplers"] = given.samplers
    lab.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CODE},
            "data": {"slow.py": MODULE},
        }
    )
    took = {}
    for name, staleness in (("synchronous", 0), ("asynchronous", STALENESS)):
        metrics = measured(lab, staleness=staleness, steps=steps, samplers=given.samplers)
        took[name] = seconds_per_step(metrics)
        result.figures[name] = {
            "seconds_per_step": round(took[name], 3),
            "trainer_waits_seconds_per_step": round(mean(metrics, "wait_seconds"), 3),
            "staleness_mean": round(mean(metrics, "staleness_mean"), 3),
            "staleness_max": max(metric.staleness_max for metric in metrics),
            "dropped_stale_groups": sum(metric.dropped_stale for metric in metrics),
        }
        print(f"{name}: {result.figures[name]}", flush=True)
    lab.delete("configmap", CODE)
    result.at_least("asynchronous to synchronous", took["synchronous"] / took["asynchronous"], BAR)
    result.print()


def connected() -> Lab:
    """The demo's namespace of the local cluster."""
    tools = Tools(kubectl=rl_local("bin", "kubectl"), kubeconfig=Path(rl_local("kubeconfig")))
    assert tools.kubeconfig is not None
    cluster = Cluster.connect(tools.kubeconfig, context=tools.context)
    return Lab(cluster=cluster, tools=tools, namespace=NAMESPACE)


def measured(lab: Lab, *, staleness: int, steps: int, samplers: int) -> list[StepMetrics]:
    """One run: its steps, without the first ones."""
    manifest = job(
        NAME,
        code={"configMapRef": {"name": CODE}},
        reward__scorers=[{"kind": "ExactMatch"}, SLOW],
        algorithm__offPolicy={"maxStaleness": staleness},
        training__steps=steps,
        training__checkpoint__everySteps=1000,
        training__evaluation={"beforeTraining": False, "afterTraining": False},
        samplers__0__template__maxConcurrentGroups=AT_ONCE,
        samplers__0__template__autoscaling={"minReplicas": samplers},
    )
    lab.delete("rljob", NAME)
    lab.apply(manifest)
    # A watch, not polling: polling would take a tenth of the two cores from the run.
    lab.kubectl(
        "wait",
        f"rljob/{NAME}",
        "--for=condition=Complete",
        f"--timeout={LIMIT_SECONDS:.0f}s",
        seconds=LIMIT_SECONDS + 10,
    )
    with lab.stores() as stores:
        prefix = stores.run_prefix(lab.job(NAME).status.run_id)
        metrics = read_metrics(stores.objects, prefix)
    lab.delete("rljob", NAME)
    return metrics[WARM_STEPS:]


def seconds_per_step(metrics: list[StepMetrics]) -> float:
    """Wall time between commits, on average."""
    return (metrics[-1].time - metrics[0].time) / (len(metrics) - 1)


def mean(metrics: list[StepMetrics], name: str) -> float:
    """Of a field, over the same steps."""
    kept = metrics[1:]
    return float(sum(getattr(metric, name) for metric in kept)) / len(kept)


if __name__ == "__main__":
    main()
