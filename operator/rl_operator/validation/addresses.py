"""Addresses that a job names: no token goes out in clear, and no node's own server is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rl_contracts import addresses
from rl_contracts.errors import Refusal
from rl_contracts.spec.agent.endpoints import Completions, Endpoint
from rl_contracts.spec.agent.search import Search
from rl_contracts.spec.resources import RLJobSpec


@dataclass(frozen=True, slots=True)
class Named:
    """An address of a spec."""

    field: str
    url: str
    secret: str
    """The field with the Secret that is sent there; empty where none is."""
    allowed: bool
    """``allowPlainHttp``."""
    has_option: bool = True
    """Whether the manifest has ``allowPlainHttp`` beside it."""


def of_spec(spec: RLJobSpec) -> Iterator[Refusal]:
    """Refusals of addresses that a spec names."""
    for named in _named(spec):
        host = addresses.host_of(named.url)
        if addresses.is_metadata(host):
            yield Refusal(
                field=named.field,
                value=named.url,
                reason="AddressRefused",
                message="At this address a node finds its own credentials.",
                remedy="Name another server.",
            )
        elif named.secret and named.url.startswith("http:") and not _is_private(named, host):
            yield Refusal(
                field=named.field,
                value=named.url,
                reason="TokenInClear",
                message=f"The credentials of {named.secret} would be sent there without TLS.",
                remedy="Use https, or for a Service of the cluster or a private address set "
                "allowPlainHttp beside it to true."
                if named.has_option
                else "Use https.",
            )


def _is_private(named: Named, host: str) -> bool:
    return addresses.is_loopback(host) or (named.allowed and addresses.is_internal(host))


def _named(spec: RLJobSpec) -> Iterator[Named]:
    hub, tracking = spec.data.hub, spec.training.tracking
    secret = "tokenSecretRef" if hub.token_secret_ref else ""
    yield Named("spec.data.hub.endpoint", hub.endpoint, secret, hub.allow_plain_http)
    if tracking.mlflow:
        secret = "secretName" if tracking.secret_name else ""
        yield Named(
            "spec.training.tracking.mlflow", tracking.mlflow, secret, tracking.allow_plain_http
        )
    if tracking.traces is not None:
        at = "spec.training.tracking.traces.endpoint"
        yield Named(at, tracking.traces.endpoint, "", allowed=True, has_option=False)
    for index, server in enumerate(spec.agent.mcp_servers):
        if server.url is not None:
            secret = "tokenSecretRef" if server.token_secret_ref else ""
            at = f"spec.agent.mcpServers[{index}].url"
            yield Named(at, server.url, secret, server.allow_plain_http)
    if spec.agent.environment is not None and spec.agent.environment.url is not None:
        secret = "headersSecret" if spec.agent.environment.headers_secret else ""
        at = "spec.agent.environment.url"
        yield Named(at, spec.agent.environment.url, secret, allowed=False, has_option=False)
    if spec.agent.search is not None:
        yield _endpoint("spec.agent.search.url", spec.agent.search)
    for place, completions in _completions(spec):
        for index, endpoint in enumerate(completions.endpoints):
            yield _endpoint(f"{place}.endpoints[{index}].url", endpoint)


def _completions(spec: RLJobSpec) -> Iterator[tuple[str, Completions]]:
    for index, scorer in enumerate(spec.reward.scorers):
        if scorer.judge is not None:
            yield f"spec.reward.scorers[{index}].judge", scorer.judge
    if spec.agent.user is not None:
        yield "spec.agent.user", spec.agent.user
    if spec.agent.browse is not None:
        yield "spec.agent.browse", spec.agent.browse


def _endpoint(field: str, endpoint: Endpoint | Search) -> Named:
    secret = "tokenSecretRef" if endpoint.token_secret_ref else ""
    return Named(field, endpoint.url, secret, endpoint.allow_plain_http)
