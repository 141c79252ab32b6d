"""Which values show that a release is not the demo's."""

from pathlib import Path
from typing import Any

import pytest

from rl_console.demo.install import chart_values
from rl_console.demo.release import SET_BY_DEMO, differences, leaves
from rl_console.demo.settings import IMAGES, DemoSettings
from rl_console.tools import Tools

DEFAULTS = {"kueue": {"enabled": False}, "watchNamespaces": [], "images": {"operator": ""}}
SETTINGS = DemoSettings(
    tools=Tools(),
    checkout=Path(),
    images={image: f"r/{image}:1" for image in IMAGES},
    cache=Path(),
    out=Path(),
)
VALUES = chart_values(SETTINGS, namespaces=["rl-demo"], current={})


def test_every_value_that_the_demo_sets_is_known_as_its_own() -> None:
    assert leaves(VALUES).keys() == SET_BY_DEMO


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        pytest.param(VALUES, [], id="the demo's"),
        pytest.param(
            {**VALUES, "stores": {"embedded": {"enabled": True}}}, [], id="of an older demo"
        ),
        pytest.param({**VALUES, "kueue": {"enabled": False}}, [], id="switched on and off again"),
        pytest.param(
            {**VALUES, "kueue": {"enabled": True}, "watchNamespaces": ["a"]},
            ["it sets kueue.enabled, watchNamespaces, which the demo would drop"],
            id="changed by a user",
        ),
        pytest.param(
            {"images": VALUES["images"]},
            ["it does not set imagePullPolicy, stores.embedded.enabled, as the demo does"],
            id="with stores of the user's own",
        ),
    ],
)
def test_a_release_is_the_demos_by_its_values(config: dict[str, Any], shown: list[str]) -> None:
    assert differences(config, defaults=DEFAULTS) == shown
