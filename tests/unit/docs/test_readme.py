"""The README matches the checkout."""

import re
from pathlib import Path

import pytest
import yaml

from rl_contracts.spec.base import Model
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from tests.samples.manifests import EXAMPLES

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
MODELS: dict[str, type[Model]] = {"RLJob": RLJobSpec, "SamplerPool": SamplerPoolSpec}
MOST_WORDS = 1000


def test_the_first_job_is_the_example() -> None:
    minimal = (ROOT / "examples" / "minimal.yaml").read_text()
    assert minimal.strip() in README
    assert len(minimal.splitlines()) == 20


def test_the_first_job_needs_nothing_but_the_namespace_and_its_stores() -> None:
    spec = yaml.safe_load((ROOT / "examples" / "minimal.yaml").read_text())["spec"]
    sources = [spec["model"], *spec["data"]["train"], *spec["data"]["validation"]]
    assert [each["uri"] for each in sources if not each["uri"].startswith("hf://")] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_fit_the_models(path: Path) -> None:
    manifests = list(yaml.safe_load_all(path.read_text()))
    assert any(manifest["kind"] == "RLJob" for manifest in manifests)
    for manifest in manifests:
        MODELS[manifest["kind"]].model_validate(manifest["spec"])


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
