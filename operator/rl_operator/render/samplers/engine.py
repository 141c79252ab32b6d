"""The container of the inference engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.kube.settings import Images
from rl_operator.render import pods
from rl_operator.render.samplers import engine_options, lora

Manifest = dict[str, Any]

WEIGHTS_FOLDER = "/weights"
PORT = 30000
PROGRAM = """\
import os, runpy, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
"""
"""SGLang, which can be ended while it loads. It handles SIGTERM only once it serves, and the kernel
gives the first process of a container no signal without a handler: a pod that is stopped before
would last as long as its grace."""
DTYPES = {"BF16": "bfloat16", "FP32": "float32"}
ARGUMENTS = (
    "--config",
    "--model-path",
    "--weight-version",
    "--host",
    "--port",
    "--dtype",
    "--sleep-on-idle",
    "--incremental-streaming-output",
)
"""Arguments that only the operator sets."""
ROUTING = "--enable-return-routed-experts"
"""Set where the experts that the engine chooses are trained."""


def container(
    spec: SamplerPoolSpec, runs: Sequence[RLJobSpec], *, images: Images, agent_port: int
) -> Manifest:
    """The engine of runs that all use the precision of the first one.

    ``engine_sharing`` refuses runs of another precision.
    """
    engine = spec.template.engine
    sections = [run.training.lora for run in runs if run.training.lora is not None]
    replayed = any(run.algorithm.experts.routing == "Replay" for run in runs)
    low_rank = lora.engine_arguments(sections, engine.args) if sections else []
    sources = {"envFrom": [dict(source) for source in engine.env_from]} if engine.env_from else {}
    # torch asks for the user's name, and in SGLang's own image the pod's uid has none.
    named = any(variable.name == "USER" for variable in engine.env)
    user = {} if named else {"USER": "engine"}
    return {
        "name": "engine",
        "image": engine.image or images.engine,
        "imagePullPolicy": images.pull_policy,
        "restartPolicy": "Always",
        "command": ["python3", "-c", PROGRAM],
        "args": [
            "--model-path",
            f"{WEIGHTS_FOLDER}/current",
            "--weight-version",
            "base",
            "--host",
            "127.0.0.1",
            "--port",
            str(PORT),
            "--dtype",
            DTYPES[runs[0].training.precision],
            "--sleep-on-idle",
            "--incremental-streaming-output",
            *([ROUTING] if replayed else []),
            *low_rank,
            *engine_options.arguments(engine),
            *engine.args,
        ],
        "env": pods.environment({"HOME": pods.TMP, **user}, engine.env),
        **sources,
        "resources": spec.template.resources.to_kubernetes(),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The agent answers for the engine, because it knows how long a start may take.
        "livenessProbe": pods.probe("/engine-live", agent_port, delay=30, period=5, failures=12),
        "volumeMounts": [
            {"name": "weights", "mountPath": WEIGHTS_FOLDER},
            {"name": "engine-tmp", "mountPath": pods.TMP},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }
