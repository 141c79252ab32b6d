"""What is made of a value is made once, and forgotten with it."""

from __future__ import annotations

from rl_contracts.spec.base import EnvironmentVariable, Resources
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import names
from rl_operator.kube.weak_memo import WeakMemo
from rl_operator.validation.refusals import of_spec
from tests.samples.manifests import a_job


def test_weak_memo_computes_once_per_object_and_forgets_with_it() -> None:
    asked: list[Resources] = []

    def limits(value: Resources) -> object:
        asked.append(value)
        return value.limits

    once = WeakMemo(limits)
    first, same = Resources(limits={"cpu": 1}), Resources(limits={"cpu": 1})
    assert [once(first), once(first), once(same)] == [{"cpu": 1}] * 3
    assert (len(asked), len(once)) == (2, 2)
    asked.clear()
    del first
    assert len(once) == 1
    other = Resources(limits={"cpu": 2})  # perhaps where the first one was
    assert once(other) == {"cpu": 2}


def test_a_spec_that_was_changed_has_another_config_and_other_refusals() -> None:
    spec = RLJobSpec.model_validate(a_job("x")["spec"])
    assert names.spec_config("x", spec, "main") == names.spec_config("x", spec, "main")
    assert next(of_spec(spec), None) is None
    edited = spec.model_copy(update={"run_id": "other"})
    assert names.spec_config("x", edited, "main") != names.spec_config("x", spec, "main")
    reserved = [EnvironmentVariable(name="RL_RUN")]
    bad = spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"env": reserved})})
    assert next(of_spec(bad)).reason == "VariableReserved"
