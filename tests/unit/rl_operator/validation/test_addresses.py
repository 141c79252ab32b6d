"""No token goes out in clear, and no node's own server is asked."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.validation.addresses import of_spec
from tests.unit.rl_operator.builders import a_spec

TOKEN: dict[str, Any] = {"tokenSecretRef": {"name": "t"}}
PLAIN: dict[str, Any] = {"allowPlainHttp": True}


def sections(url: str, *, token: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """A spec that names one address in each place."""
    server = {"url": url, "model": "m", **token, **plain}
    mlflow = {"mlflow": url, **plain, **({"secretName": "s"} if token else {})}
    return {
        "data": {
            "train": [{"name": "sums", "uri": "s3://rl-data/sums.jsonl"}],
            "hub": {"endpoint": url, **token, **plain},
        },
        "training": {"steps": 1, "tracking": mlflow},
        "agent": {
            "kind": "ToolLoop",
            "mcpServers": [{"name": "a", "url": url, **token, **plain}],
            "builtInTools": ["Search"],
            "search": {"url": url, **token, **plain},
            "browse": {"endpoints": [server]},
        },
        "reward": {
            "scorers": [{"kind": "Math"}, {"kind": "Judged", "judge": {"endpoints": [server]}}]
        },
    }


FIELDS = [
    "spec.data.hub.endpoint",
    "spec.training.tracking.mlflow",
    "spec.agent.mcpServers[0].url",
    "spec.agent.search.url",
    "spec.reward.scorers[1].judge.endpoints[0].url",
    "spec.agent.browse.endpoints[0].url",
]


@pytest.mark.parametrize(
    ("url", "token", "plain", "reason"),
    [
        ("http://there.example", TOKEN, {}, "TokenInClear"),
        ("http://there.example", TOKEN, PLAIN, "TokenInClear"),
        ("http://there", TOKEN, {}, "TokenInClear"),
        ("http://there", TOKEN, PLAIN, ""),
        ("http://127.0.0.1:80", TOKEN, {}, ""),
        ("https://there.example", TOKEN, {}, ""),
        ("http://there.example", {}, {}, ""),
        ("http://169.254.169.254/latest", {}, {}, "AddressRefused"),
        ("https://169.254.169.254/latest", TOKEN, PLAIN, "AddressRefused"),
    ],
)
def test_each_place_is_checked(
    url: str, token: dict[str, Any], plain: dict[str, Any], reason: str
) -> None:
    refused = list(of_spec(a_spec(**sections(url, token=token, plain=plain))))
    assert [each.field for each in refused] == (FIELDS if reason else [])
    assert {each.reason for each in refused} == ({reason} if reason else set())
    assert all(each.value == url for each in refused)


HEADERS = {"headersSecret": "keys"}


@pytest.mark.parametrize(
    ("url", "headers", "reason"),
    [
        ("http://wordle:8000", {}, ""),
        ("http://wordle:8000", HEADERS, "TokenInClear"),
        ("http://127.0.0.1:8000", HEADERS, ""),
        ("https://there.example", HEADERS, ""),
        ("http://169.254.169.254", {}, "AddressRefused"),
        ("http://metadata.google.internal", {}, "AddressRefused"),
    ],
)
def test_an_environments_address_is_checked(url: str, headers: dict[str, Any], reason: str) -> None:
    agent = {"kind": "Environment", "environment": {"url": url, **headers}}
    refused = list(of_spec(a_spec(agent=agent)))
    assert [each.reason for each in refused] == ([reason] if reason else [])
    assert all(each.field == "spec.agent.environment.url" for each in refused)
    assert all("allowPlainHttp" not in each.remedy for each in refused), "it has no such option"


@pytest.mark.parametrize(
    ("endpoint", "reasons"),
    [
        ("http://collector:4318/v1/traces", []),
        ("http://169.254.169.254/v1/traces", ["AddressRefused"]),
    ],
)
def test_the_receiver_of_traces_is_checked(endpoint: str, reasons: list[str]) -> None:
    training = {"steps": 1, "tracking": {"traces": {"endpoint": endpoint}}}
    refused = list(of_spec(a_spec(training=training)))
    assert [each.reason for each in refused] == reasons
    assert all(each.field == "spec.training.tracking.traces.endpoint" for each in refused)
