"""SamplerPools that the API server refuses and accepts."""

from __future__ import annotations

from typing import Any

from tests.samples.manifests import a_job

Manifest = dict[str, Any]


def a_pool(**spec: Any) -> Manifest:
    """A shared SamplerPool."""
    shared = {"model": {"uri": "s3://abc/model"}}
    return {**a_job("options"), "kind": "SamplerPool", "spec": shared | spec}


REFUSED_POOLS: dict[str, tuple[Manifest, str]] = {
    "a shared pool with a quantized cache": (
        a_pool(template={"engine": {"cachePrecision": "FP8E4M3"}}),
        "spec.template.engine.cachePrecision",
    ),
    "weights": (a_pool(weights={"version": 7}), 'unknown field "spec.weights"'),
    "a service": (a_pool(service={"type": "ClusterIP"}), 'unknown field "spec.service"'),
    "a revision of a folder": (
        a_pool(model={"uri": "s3://abc/model", "revision": "v1"}),
        "spec.model.revision",
    ),
    "the admission of a queue": (
        a_pool(admitted=1),
        "spec.admitted is for the pool of a job, and the operator sets it",
    ),
    "a model on a volume": (a_pool(model={"uri": "file:///model"}), "spec.model.uri"),
    "a revision that moves": (
        a_pool(model={"uri": "hf://org/name", "revision": "v1"}, maxRuns=2),
        "write hf://org/name@<40 hexadecimal digits>",
    ),
    "a tokenizer that moves": (
        a_pool(
            model={"uri": f"hf://org/name@{'a' * 40}", "tokenizerUri": "hf://org/words"},
            maxRuns=2,
        ),
        "spec.model.tokenizerUri must name a commit",
    ),
    "several runs that scale": (
        a_pool(maxRuns=2, template={"autoscaling": {"mode": "Builtin", "maxReplicas": 3}}),
        "mode Builtin judges by one run, and maxRuns is 2",
    ),
}
ACCEPTED_POOLS = {
    "a branch for one run": a_pool(model={"uri": "hf://org/name", "revision": "main"}),
    "a commit beside the name": a_pool(
        model={"uri": "hf://org/name", "revision": "a" * 40}, maxRuns=2
    ),
    "a commit in the name": a_pool(model={"uri": f"hf://org/name@{'a' * 40}"}, maxRuns=2),
}
