"""The container of the inference engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_contracts.engine_server import ENVIRONMENT, PROGRAM, server_arguments
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.kube.settings import Images
from rl_operator.render import pods
from rl_operator.render.samplers import lora

Manifest = dict[str, Any]

WEIGHTS_FOLDER = "/weights"
PORT = 30000
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

NO_EMBEDDINGS = {"SGLANG_VLM_CACHE_SIZE_MB": "0"}
"""SGLang keeps the vision tower's embeddings of images by their hash, also when other weights are
loaded: where the tower is trained, an image that was shown before would be that of an old one."""


def container(
    spec: SamplerPoolSpec, runs: Sequence[RLJobSpec], *, images: Images, agent_port: int
) -> Manifest:
    """The engine of runs that all use the precision of the first one.

    ``engine_sharing`` refuses runs of another precision.
    """
    engine = spec.template.engine
    served = [run.training.served_adapters for run in runs]
    sections = [section for section in served if section is not None]
    kept = NO_EMBEDDINGS if any(run.training.vision == "Trained" for run in runs) else {}
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
        "args": server_arguments(
            engine,
            folder=f"{WEIGHTS_FOLDER}/current",
            port=PORT,
            precision=runs[0].training.precision,
            also=[*([ROUTING] if replayed else []), *low_rank],
        ),
        "env": pods.environment({"HOME": pods.TMP, **ENVIRONMENT, **user, **kept}, engine.env),
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
