"""Options that other operators have and this one cannot honour: refused by field, with a remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import SamplerTemplate
from rl_operator.render.objects import METRICS_PORT
from rl_operator.validation.model_options import of_model


def of_job(spec: RLJobSpec) -> Iterator[Refusal]:
    """Of an RLJob, but for its samplers' templates."""
    yield from of_model(spec.model)
    yield from _of_transport(spec)
    yield from _of_rendezvous(spec)


def of_pool(spec: SamplerPoolSpec) -> Iterator[Refusal]:
    """Of a SamplerPool, but for its template."""
    if spec.model is not None:
        yield from of_model(spec.model, moves=spec.max_runs == 1)
    if spec.weights is not None:
        yield Refusal(
            field="spec.weights",
            value=_text(spec.weights),
            reason="WeightsUnsupported",
            message="Samplers serve the newest policy of the run that they are assigned to: what "
            "older ones sample can soon not be trained.",
            remedy="Remove it. To sample with one policy, run a job of algorithm.objective "
            "Sampling or Evaluation with its export in spec.model.uri.",
        )
    if spec.service is not None:
        yield Refusal(
            field="spec.service",
            value=_text(spec.service),
            reason="ServiceUnsupported",
            message="Samplers claim their work from the store, and their engines listen on "
            "loopback alone: there is nothing that a Service could lead to.",
            remedy="Remove it. kubectl port-forward reaches one pod's chat.",
        )


def of_template(at: str, template: SamplerTemplate) -> Iterator[Refusal]:
    """Of a template; ``at`` says where it was written."""
    if template.drain.mode == "Pause":
        yield Refusal(
            field=f"{at}.drain.mode",
            value="Pause",
            reason="DrainUnsupported",
            message="Requests that an engine keeps paused are lost with its pod: nobody could go "
            "on with them.",
            remedy="Use Finish (running groups have drain.timeoutSeconds) or Abort.",
        )


def _of_transport(spec: RLJobSpec) -> Iterator[Refusal]:
    if spec.weight_sync.transport.kind != "S3":
        yield Refusal(
            field="spec.weightSync.transport.kind",
            value=spec.weight_sync.transport.kind,
            reason="TransportUnsupported",
            message="Trainer and samplers never talk to each other, so that either may go, come "
            "and scale without the other.",
            remedy="Use S3; transport.delta and transport.relay make it fast.",
        )
    elif spec.network_policy == "None" and spec.weight_sync.transport.relay:
        yield Refusal(
            field="spec.weightSync.transport.relay",
            value="true",
            reason="RelayUnguarded",
            message="Without spec.networkPolicy RunOnly any pod could read weights from samplers.",
            remedy="Set relay to false, or networkPolicy to RunOnly.",
        )
    bound = spec.weight_sync.max_unavailable
    if bound is not None:
        yield Refusal(
            field="spec.weightSync.maxUnavailable",
            value=str(bound)[:200],
            reason="TransportUnsupported",
            message="Each sampler takes a version up by itself, downloads it while it serves, and "
            "pauses for the load alone.",
            remedy="Remove it. rollout.maxUnavailable bounds the pods that are replaced.",
        )


def _of_rendezvous(spec: RLJobSpec) -> Iterator[Refusal]:
    elastic = spec.trainer.elastic
    if elastic is None:
        return
    if elastic.rdzv_conf is not None:
        yield Refusal(
            field="spec.trainer.elastic.rdzvConf",
            value=_text(elastic.rdzv_conf),
            reason="RendezvousUnsupported",
            message="The trainer's processes meet over a store of their own, which reads none of "
            "torchrun's settings.",
            remedy="Remove it. lifecycle.pendingDeadlineSeconds bounds the wait for pods.",
        )
    if elastic.rdzv_port == METRICS_PORT:
        yield Refusal(
            field="spec.trainer.elastic.rdzvPort",
            value=str(METRICS_PORT),
            reason="RendezvousUnsupported",
            message="The trainer's metrics are served there.",
            remedy="Use another one.",
        )


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value)[:200]
