"""Which spec the pods of a job read, and which edits give them another one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import names
from rl_operator.render import objects, trainer
from rl_operator.render.samplers import deployment
from tests.unit.rl_operator.builders import IMAGES, a_spec
from tests.unit.rl_operator.rendered import JOB


def test_pods_read_the_whole_spec_with_its_defaults() -> None:
    manifest = objects.spec_config(JOB, a_spec(), name="x")
    text = manifest["data"][names.SPEC_KEY]
    assert RLJobSpec.model_validate_json(text) == a_spec()
    assert json.loads(text)["algorithm"]["groupSize"] == 8


ROLLS: dict[str, tuple[dict[str, Any], bool]] = {
    "a scorer": ({"reward": {"scorers": [{"kind": "Other"}]}}, True),
    "the temperature": ({"agent": {"sampling": {"temperature": 0.5}}}, True),
    "concurrency": ({"samplers": [{"name": "main", "template": {"maxConcurrentGroups": 3}}]}, True),
    "a pause": ({"suspend": True}, False),
    "the end of the run": ({"stop": True}, False),
    "the retries": ({"lifecycle": {"backoffLimit": 9}}, False),
    "the trainer's image": ({"trainer": {"image": "mine"}}, False),
    "what becomes of late samplers": ({"weightSync": {"onTimeout": "Exclude"}}, False),
    "what a queue is asked for": ({"scheduling": {"samplerQuota": "MinReplicas"}}, False),
    "a queue": ({"scheduling": {"provider": "Kueue", "queueName": "mine"}}, False),
    "who may reach them": ({"networkPolicy": "None"}, False),
    "the tokenizer": (
        {"model": {"uri": "s3://rl-data/models/arithmetic", "tokenizerUri": "s3://abc/t"}},
        True,
    ),
}


@pytest.mark.parametrize(("sections", "rolls"), ROLLS.values(), ids=ROLLS.keys())
def test_samplers_roll_only_for_what_they_read(sections: dict[str, Any], rolls: bool) -> None:
    samplers = {"samplers": [{"name": "main"}]}
    before = names.spec_config("job", a_spec(**samplers), "main")
    after = names.spec_config("job", a_spec(**{**samplers, **sections}), "main")
    assert (before != after) is rolls


MAIN, OTHER = {"name": "main"}, {"name": "other"}
BUSY = {"name": "other", "template": {"maxConcurrentGroups": 3}}


@pytest.mark.parametrize("groups", [[MAIN, OTHER], [OTHER, MAIN], [MAIN, BUSY]], ids=str)
def test_other_groups_do_not_change_the_pods_of_a_group(groups: list[dict[str, Any]]) -> None:
    alone, several = a_spec(samplers=[MAIN]), a_spec(samplers=groups)
    (main,) = (group for group in several.samplers if group.name == "main")
    template = deployment.pod_template(JOB, several, main, images=IMAGES)
    assert template == deployment.pod_template(JOB, alone, alone.samplers[0], images=IMAGES)


@pytest.mark.parametrize(
    "sections",
    [
        *(sections for sections, _ in ROLLS.values()),
        {"trainer": {"parallelism": {"fsdp": 1}}},
        {"lifecycle": {"retention": {"checkpoints": {"maxBytes": 10**9}}}},
        {"lifecycle": {"progressDeadlineSeconds": 86400}},
    ],
    ids=str,
)
def test_a_trainer_reads_every_field_as_it_is_when_it_is_created(sections: dict[str, Any]) -> None:
    samplers = {"samplers": [{"name": "main"}]}
    before, after = a_spec(**samplers), a_spec(**{**samplers, **sections})
    mounted = {
        volume["configMap"]["name"]
        for spec in (before, after)
        for size in (None, 2)
        for volume in trainer.pod_template(JOB, spec, attempt=1, images=IMAGES, size=size)["spec"][
            "volumes"
        ]
        if volume["name"] == names.SPEC_VOLUME
    }
    assert mounted == {names.trainer_config("job", spec) for spec in (before, after)}
    assert len(mounted) == 2
    assert not mounted & {names.spec_config("job", spec, "main") for spec in (before, after)}


def test_a_pool_that_the_spec_has_left_is_rendered_until_it_is_released() -> None:
    spec = a_spec()
    left = names.spec_config("job", spec, "another")
    assert left == names.spec_config("job", spec, "a third")
    assert left != names.spec_config("job", spec, "main")
