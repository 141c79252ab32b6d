"""Options that cannot be honoured are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.sampler import Sampler
from rl_contracts.errors import Refusal
from rl_operator.validation.refusals import of_samplers, of_spec
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import a_spec


def a_group(**template: Any) -> dict[str, Any]:
    return {"samplers": [{"name": "main"}, {"name": "other", "template": template}]}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a scorer that nobody has": (
        {"reward": {"scorers": [{"kind": "Math"}, {"kind": "Magic"}]}},
        "spec.reward.scorers[1].kind",
        "ScorerUnknown",
    ),
    "our variable": (
        {"trainer": {"env": [{"name": "A"}, {"name": "RL_RUN"}]}},
        "spec.trainer.env[1].name",
        "VariableReserved",
    ),
    "the launcher's variable": (
        {"trainer": {"env": [{"name": "PET_NNODES"}]}},
        "spec.trainer.env[0].name",
        "VariableReserved",
    ),
    "the agent's variable": (
        a_group(env=[{"name": "A"}, {"name": "RL_POOL"}]),
        "spec.samplers[1].template.env[1].name",
        "VariableReserved",
    ),
    "the engine's home": (
        a_group(engine={"env": [{"name": "HOME"}]}),
        "spec.samplers[1].template.engine.env[0].name",
        "VariableReserved",
    ),
    "our argument": (
        a_group(engine={"args": ["--device", "cpu", "--dtype=half"]}),
        "spec.samplers[1].template.engine.args[2]",
        "ArgumentReserved",
    ),
    "an adapter of the engine's own": (
        a_group(engine={"args": ["--lora-paths", "a=/b"]}),
        "spec.samplers[1].template.engine.args[0]",
        "ArgumentReserved",
    ),
    "fp8": (
        a_group(engine={"args": ["--quantization", "fp8"]}),
        "spec.samplers[1].template.engine.args[0]",
        "EngineQuantized",
    ),
    "fp8, abbreviated": (
        a_group(engine={"args": ["--device", "cuda", "--quant=fp8"]}),
        "spec.samplers[1].template.engine.args[2]",
        "EngineQuantized",
    ),
    "another way to quantize": (
        a_group(engine={"args": ["--torchao-config", "int8wo"]}),
        "spec.samplers[1].template.engine.args[0]",
        "EngineQuantized",
    ),
}


@pytest.mark.parametrize(("sections", "field", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_by_field(sections: dict[str, Any], field: str, reason: str) -> None:
    (refusal,) = of_spec(a_spec(**sections))
    assert (refusal.field, refusal.reason) == (field, reason)
    assert refusal.value
    assert refusal.remedy


def test_ordinary_options_pass() -> None:
    ordinary = a_group(
        engine={
            "args": ["--device", "cpu", "--quantization-param-path=kv.json"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        },
        resources={"limits": {"nvidia.com/gpu": 1, "memory": "4Gi", "cpu": "500m"}},
    )
    assert list(of_spec(a_spec(**ordinary))) == []


CAPPED = {"kind": "ImportanceCap"}


@pytest.mark.parametrize("loss", ["PPOClip", "DAPO", "MiniRL"])
@pytest.mark.parametrize(
    "options",
    [
        {"correction": CAPPED},
        {"correction": {**CAPPED, "strictInBound": True}, "maxStaleness": 8},
        {"correction": {**CAPPED, "decay": 0.3}, "maxStaleness": 4},  # 4 e^-1.2 = 1.2
        {"correction": {**CAPPED, "decay": 9.0}, "maxStaleness": 0},
    ],
)
def test_importance_cap_that_leaves_out_no_trained_token_is_refused(
    loss: str, options: dict[str, Any]
) -> None:
    (refusal,) = of_spec(a_spec(algorithm={"loss": {"kind": loss}, "offPolicy": options}))
    assert (refusal.field, refusal.value, refusal.reason) == (
        "spec.algorithm.offPolicy.correction.kind",
        "ImportanceCap",
        "OptionUnused",
    )
    assert loss in refusal.message
    assert "decay" in refusal.remedy


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("PPOClip", {"correction": {**CAPPED, "decay": 0.4}, "maxStaleness": 4}),  # 4 e^-1.6 = 0.8
        *(
            (loss, {"correction": CAPPED})
            for loss in ("GSPO", "CISPO", "CEGPPO", "DecoupledPPO", "GMPO")
        ),
    ],
)
def test_importance_cap_that_can_leave_out_a_trained_token_is_accepted(
    loss: str, options: dict[str, Any]
) -> None:
    spec = a_spec(algorithm={"loss": {"kind": loss}, "offPolicy": options})
    assert list(of_spec(spec)) == []


def test_a_scorer_that_a_sampler_does_not_know() -> None:
    spec = a_spec(reward={"scorers": [{"kind": "ExactMatch"}, {"kind": "Magic"}]})
    sampler = a_sampler(scorers=["Format", "ExactMatch"])
    (refusal,) = of_samplers(spec, [sampler])
    assert (refusal.field, refusal.value) == ("spec.reward.scorers[1].kind", "Magic")
    assert refusal.remedy == "Use one of: ExactMatch, Format."
    assert list(of_samplers(spec, [])) == []


def test_a_samplers_own_refusal_comes_first() -> None:
    refusal = Refusal(
        field="spec.reward.scorers[0].entryPoint",
        value="a:b",
        reason="EntryPointUnusable",
        message="No.",
        remedy="Mend it.",
    )
    stored = a_sampler(refusals=[refusal], scorers=["ExactMatch"]).to_mongo()
    sampler = Sampler.from_mongo(stored)
    spec = a_spec(reward={"scorers": [{"kind": "Magic"}]})
    assert next(of_samplers(spec, [sampler])) == refusal


def test_a_scorer_of_an_image_of_the_users_own_is_left_to_the_samplers() -> None:
    scorers = {"scorers": [{"kind": "Magic"}]}
    group = {"name": "main", "template": {"image": "registry.example/derived:1"}}
    assert list(of_spec(a_spec(reward=scorers, samplers=[group]))) == []
    brought = {"scorers": [{"kind": "Magic", "entryPoint": "mine:magic"}]}
    assert list(of_spec(a_spec(reward=brought))) == []


@pytest.mark.parametrize("name", ["tools", "add_generation_prompt", "tokenize", "no-name"])
def test_arguments_that_a_chat_template_cannot_be_given_are_refused(name: str) -> None:
    (refusal,) = of_spec(a_spec(agent={"chatTemplateArguments": {name: True}}))
    assert refusal.field == f"spec.agent.chatTemplateArguments.{name}"
    assert (refusal.value, refusal.reason) == ("True", "OptionUnusable")
    assert not list(of_spec(a_spec(agent={"chatTemplateArguments": {"enable_thinking": False}})))
