"""The pages name only fields, conditions, metrics, files and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, TypeAdapter

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.step_metrics import Drops, GpuUse
from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus
from rl_contracts.stores.clients.settings import StoreSettings
from rl_operator.kube import metrics as operator_metrics
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.metrics import agent_registry
from rl_trainer.context.figures import Figures
from tests.samples.documents import a_step
from tests.unit.docs.pages import (
    PACKAGE_FOLDERS,
    PAGES,
    ROOT,
    arguments,
    blocks,
    everything_quoted,
    fields,
    leads_somewhere,
    own_tokens,
    quoted,
    reachable,
    trees,
)

ROOTS: dict[str, list[type[BaseModel]]] = {
    "spec": [RLJobSpec, SamplerPoolSpec],
    "status": [RLJobStatus, SamplerPoolStatus],
}
MODELS = reachable(*ROOTS["spec"], *ROOTS["status"], StoreSettings)
NAMES = {name for model in MODELS for name in fields(model)}
VALUES = yaml.safe_load((ROOT / "charts" / "rl-operator" / "values.yaml").read_text())
OF_CORE = {
    "configMapRef",
    "secretKeyRef",
    "secretRef",
    *("allowPrivilegeEscalation", "automountServiceAccountToken", "readOnlyRootFilesystem"),
    *("emptyDir", "hostNetwork", "hostPID", "hostIPC", "hostPath", "hostPort", "hostIP"),
    *("shareProcessNamespace", "procMount", "seccompProfile", "appArmorProfile", "seLinuxOptions"),
}
"""Fields of core/v1 that sections pass on."""
ROUTED = (
    "load_max_ratio",
    "load_entropy",
    "dead",
    "router_entropy",
    "load_balance_loss",
    "z_loss",
)
"""Numbers of a step's routers."""
OF_MONGODB = {
    "authMechanism",
    "findAndModify",
    "readPreference",
    "readWrite",
    "retryWrites",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsCRLFile",
}
"""Names of MongoDB's server and of its URIs."""
KINDS_OF_OTHERS = ("NetworkPolicy", "ResourceQuota", "Role")
BENCHMARKS = {
    ".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts)
    for pattern in ("*.py", "*/*.py")
    for path in (ROOT / "benchmarks").glob(pattern)
    if "__main__" in path.read_text()
}
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def is_value(path: list[str]) -> bool:
    """Whether the chart has this value."""
    place = VALUES
    for name in path:
        if not isinstance(place, dict) or name not in place:
            return False
        place = place[name]
    return True


def is_field(token: str) -> bool:
    first, *rest = token.replace("[]", "").split(".")
    if first in ROOTS:
        return any(leads_somewhere(root, rest) for root in ROOTS[first])
    return any(leads_somewhere(model, [first, *rest]) for model in MODELS) or is_value(
        [first, *rest]
    )


@EVERY_PAGE
def test_fields_exist(page: Path) -> None:
    files = (
        {path.name for path in ROOT.rglob("*.py")}
        | BENCHMARKS
        | {
            "metrics.jsonl",
            "report.json",
            "manifest.json",
            "train.jsonl",
        }
    )
    dotted = re.compile(r"[a-z][A-Za-z]*(\[\])?(\.[a-z][A-Za-z0-9]*(\[\])?)+")
    camel = re.compile(r"[a-z]+[A-Z][A-Za-z]*")
    for token in own_tokens(page):
        first = token.split(".")[0].removesuffix("[]")
        if dotted.fullmatch(token) and token not in files and first in {*NAMES, *ROOTS, *VALUES}:
            assert is_field(token), f"{page.name}: {token} is no field"
        elif camel.fullmatch(token) and token not in {*OF_MONGODB, *OF_CORE}:
            assert token in NAMES or token in VALUES, f"{page.name}: no field is called {token}"


@EVERY_PAGE
def test_examples_fit_the_models(page: Path) -> None:
    for text in blocks(page, "yaml"):
        written = yaml.safe_load(text)
        if written.get("kind") in KINDS_OF_OTHERS:
            continue
        if "kind" in written:
            RLJobSpec.model_validate(written["spec"])
            continue
        for section, value in written.items():
            TypeAdapter(fields(RLJobSpec)[section]).validate_python(value)


@EVERY_PAGE
def test_files_and_folders_exist(page: Path) -> None:
    parents = [ROOT, *(ROOT / package_folder for package_folder in PACKAGE_FOLDERS)]
    for token in quoted(page):
        if token.startswith("out/"):
            continue  # what a run writes
        known = [parent for parent in parents if (parent / token.split("/")[0]).is_dir()]
        if "/" in token and re.fullmatch(r"[\w./-]+", token) and token[0] not in "./" and known:
            assert any((parent / token).exists() for parent in known), f"{page.name}: {token}"


@EVERY_PAGE
def test_make_has_the_targets(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [*quoted(page), *blocks(page, "sh"), *blocks(page, "console")]
    named = {target for text in texts for target in re.findall(r"\bmake ([a-z][\w-]*)", text)}
    assert named - targets == set()


@EVERY_PAGE
def test_modules_can_be_run(page: Path) -> None:
    for module in re.findall(r"python3? -m ((?:rl_\w+|benchmarks)[\w.]*)", page.read_text()):
        path = module.rstrip(".").replace(".", "/")
        parents = [ROOT, *(ROOT / package_folder for package_folder in PACKAGE_FOLDERS)]
        existing = [parent / path for parent in parents if (parent / path).is_dir()] + [
            parent for parent in parents if (parent / f"{path}.py").is_file()
        ]
        assert existing, f"{page.name}: {module}"


def test_every_benchmark_is_on_its_page_and_no_other() -> None:
    page = (ROOT / "docs" / "contributing" / "benchmarks.md").read_text()
    rows = {command.split()[0] for command in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)}
    assert rows == BENCHMARKS


def test_every_page_is_linked() -> None:
    linked = {
        Path(target).name
        for page in PAGES
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    }
    assert {page.name for page in PAGES} - linked - {"README.md"} == set()


def condition_types() -> set[str]:
    parsed = trees("operator/rl_operator")
    given = arguments(parsed, {"ConditionUpdate": 0, "reachable": 0}, keyword="type")
    kinds = re.findall(
        r'^ *(?:kind|KIND) = "(\w+)"$',
        "\n".join(path.read_text() for path in (ROOT / "operator" / "rl_operator").rglob("*.py")),
        re.MULTILINE,
    )
    return given | set(kinds)


def test_each_condition_is_described() -> None:
    assert {"Ready", "TrainerReady", "StorageReachable", "Complete"} <= condition_types()
    text = (ROOT / "docs" / "reference" / "conditions.md").read_text()
    assert [
        condition_type
        for condition_type in sorted(condition_types())
        if not re.search(rf"\b{condition_type}\b", text)
    ] == []


def of_trainer() -> CollectorRegistry:
    """A run with everything that there may be."""
    figures, parts = Figures(), {"any": 1}
    evaluation = EvaluationResult(
        step=1,
        version=1,
        temperature=1.0,
        accuracy=1.0,
        loss=1.0,
        prompts=1,
        tokens=1,
        pass_at={"1": 1.0},
        logprob_gap_mean=0.0,
        logprob_gap_max=0.0,
        seconds=1.0,
    )
    step = a_step(
        1,
        reward_parts=parts,
        seconds=parts,
        tracking_behind=parts,
        experts=dict.fromkeys(ROUTED, 1.0),
        drops=Drops(by_cause=parts),
        gpus=[GpuUse(peak_bytes=1, used_bytes=1, size_bytes=1, busy=1.0)],
    )
    figures.go_on([step], [evaluation])
    registry = CollectorRegistry()
    registry.register(figures)
    return registry


REGISTRIES = [
    ("rl_operator_", operator_metrics.REGISTRY),
    ("rl_trainer_", of_trainer()),
    ("rl_sampler_", agent_registry(serving=Serving(), counters=Counters(), problems=Problems())),
]
METRIC = re.compile(r"(rl_(?:operator|trainer|sampler)_\w+?)(?:\{([\w,]+)\})?")
SERIES_ONLY = {"le"}
"""Labels that Prometheus adds to the series of a histogram."""


def names_of(registry: CollectorRegistry) -> set[str]:
    """As they stand in what Prometheus reads."""
    made = registry.collect()
    return {f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in made}


def labels_of(registry: CollectorRegistry) -> dict[str, set[str]]:
    """By metric, the labels of its series; a metric without any series is left out."""
    made = [metric for metric in registry.collect() if metric.samples]
    return {
        f"{metric.name}_total" if metric.type == "counter" else metric.name: {
            label for sample in metric.samples for label in sample.labels
        }
        - SERIES_ONLY
        for metric in made
    }


def described_metrics() -> dict[str, set[str]]:
    """The metrics of the reference page with the labels that it gives them."""
    page = ROOT / "docs" / "reference" / "metrics.md"
    rows = re.findall(r"^\| (`rl_.+?) \|", page.read_text(), re.MULTILINE)
    tokens = [token for row in rows for token in re.findall(r"`([^`]+)`", row)]
    matches = [METRIC.fullmatch(token) for token in tokens]
    return {match[1]: set(filter(None, (match[2] or "").split(","))) for match in matches if match}


@pytest.mark.parametrize(("prefix", "registry"), REGISTRIES)
def test_the_metrics_page_has_every_metric_and_no_other(
    prefix: str, registry: CollectorRegistry
) -> None:
    ours = {name for name in names_of(registry) if name.startswith(prefix)}
    assert ours
    assert ours == {name for name in described_metrics() if name.startswith(prefix)}


@pytest.mark.parametrize(("prefix", "registry"), REGISTRIES)
def test_the_metrics_page_has_each_metrics_labels(prefix: str, registry: CollectorRegistry) -> None:
    described = described_metrics()
    wrong = {
        name: labels
        for name, labels in labels_of(registry).items()
        if name.startswith(prefix) and labels != described[name]
    }
    assert wrong == {}


def test_no_page_names_a_metric_that_is_not_on_the_metrics_page() -> None:
    named = (METRIC.fullmatch(token) for token in everything_quoted())
    programs = {"rl_operator", "rl_trainer", "rl_sampler"}
    assert {match[1] for match in named if match and "/" not in match[1]} - programs <= set(
        described_metrics()
    )
