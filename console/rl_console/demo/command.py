"""The stages of the demo in order."""

from __future__ import annotations

import time

from rich.console import Console

from rl_console.cluster.kube import Cluster
from rl_console.demo import inputs, install, results, run
from rl_console.demo.settings import NAMESPACE, DemoSettings
from rl_console.demo.stages import Stages
from rl_console.report import Report, table
from rl_console.stores import bucket


def run_demo(
    settings: DemoSettings, cluster: Cluster, console: Console, *, started_at: float | None
) -> None:
    """Install the product, run the example and write the results into ``settings.out``.

    Args:
        settings: paths, images and tools.
        cluster: the cluster to install into.
        console: where to print the progress.
        started_at: Unix time at which the demo began, if that was before this call.

    Raises:
        StageFailedError: a stage failed.
    """
    before = max(0.0, time.time() - started_at) if started_at is not None else 0.0
    stages = Stages(console, started=time.monotonic() - before)
    settings.out.mkdir(parents=True, exist_ok=True)
    paths = inputs.paths(settings)
    with inputs.start_model(settings, paths) as model:
        with stages.stage("installing the operator and the stores"):
            install.install(settings, cluster, stages, namespaces=[NAMESPACE])
        with stages.stage("making the model and the data"):
            inputs.finish(settings, paths, model, stages)
    with stages.stage("filling the bucket"), bucket(cluster, settings.tools, NAMESPACE) as objects:
        stages.say(f"{inputs.upload(objects, paths)} objects in s3://{objects.bucket}")
    with stages.stage("removing an earlier run"):
        run.remove_earlier(settings)
    with stages.stage("running examples/arithmetic.yaml"):
        run.apply_job(settings)
        job = run.follow_job(cluster, stages)
    with stages.stage("fetching the results"):
        with bucket(cluster, settings.tools, NAMESPACE) as objects:
            prefix = f"{objects.prefix}runs/{job.run}/"
            report, folder = results.fetch(objects, prefix, settings.out)
        answers = results.answers(settings, folder, paths.data)
    values = results.summary(report, seconds=stages.elapsed)
    results.write_summary(settings.out / "demo.json", values)
    console.print(results.answers_table(answers))
    _print_ending(console, settings, report)


def _print_ending(console: Console, settings: DemoSettings, report: Report) -> None:
    console.print(
        table(report.job, report.evaluations), markup=False, highlight=False, soft_wrap=True
    )
    before, after = report.accuracy_before, report.accuracy_after
    if before is not None and after is not None:
        console.print(f"held-out accuracy: {before:.3f} before, {after:.3f} after", markup=False)
    for label, place in (
        ("reward curve", settings.out / "reward.png"),
        ("numbers", settings.out / "demo.json"),
        ("final model", f"{report.final_model} and {settings.out / 'model'}"),
    ):
        console.print(f"{label + ':':<14}{place}", markup=False, soft_wrap=True)
