"""What the hub refuses, and certificates that are not trusted, are refused with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from rl_contracts.spec.data import ModelSource
from tests.contract.rl_contracts.hub.hub_pods import (
    OLD,
    URI,
    Pods,
)
from tests.network.authority import Authority
from tests.network.hub import FakeHub, commit, serving


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    """One whose certificate is in ``ca.pem``; the hub's client keeps what it trusts."""
    made = Authority()
    (tmp_path / "ca.pem").write_text(made.pem)
    close_session()
    yield made
    close_session()


UNTRUSTED: dict[str, tuple[bool, str, str]] = {
    # whether the certificate has expired, the host that is asked, the remedy
    "an unknown authority": (False, "127.0.0.1", "SSL_CERT_FILE"),
    "an expired one": (True, "127.0.0.1", "Renew the server's certificate"),
    "one of another name": (False, "127.0.0.2", "Use a name in spec.data.hub.endpoint"),
}


@pytest.mark.parametrize(("expired", "host", "remedy"), UNTRUSTED.values(), ids=UNTRUSTED.keys())
def test_a_certificate_that_is_not_trusted_is_refused_at_once(
    authority: Authority,
    pods: Pods,
    hub: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expired: bool,
    host: str,
    remedy: str,
) -> None:
    if remedy != "SSL_CERT_FILE":
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = authority.context(tmp_path / "tls", expired=expired)
    with serving(FakeHub(hub.commits, hub.branches), host=host, context=context) as closed:
        pods.hub = closed
        refusal = pods.refusal(pods.pod())
        assert refusal.startswith(f"spec.data.hub.endpoint = {closed.url} HubUntrusted: ")
        assert remedy in refusal
    assert closed.requests == []


def test_a_certificate_of_a_configured_authority_is_trusted(
    authority: Authority,
    pods: Pods,
    hub: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = authority.context(tmp_path / "tls")
    with serving(FakeHub(hub.commits, hub.branches), context=context) as pods.hub:
        assert pods.pod().base(ModelSource(uri=URI)).model.commit == OLD


REFUSED: dict[str, tuple[dict[str, str], str, str]] = {
    "another revision": (
        {"revision": "v9"},
        "spec.model.uri = hf://org/tiny@v9 ModelNotFound",
        "no revision 'v9'",
    ),
    "another repository": (
        {"uri": "hf://org/nobody"},
        "hf://org/nobody@main ModelNotFound",
        "tokenSecretRef",
    ),
    "an impossible name": ({"uri": "hf://org/a--b..c"}, "ModelNotFound", "Correct the name."),
    "pickles": ({"revision": "pickled"}, "ModelPickled", "pytorch_model.bin"),
    "a tokenizer's field": (
        {"tokenizer_uri": "hf://org/nobody"},
        "spec.model.tokenizerUri = hf://org/nobody@main TokenizerNotFound",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_field_value_and_remedy(
    case: str, pods: Pods, hub: FakeHub, files: dict[str, bytes]
) -> None:
    source, refusal, message = REFUSED[case]
    pickled = {
        name: content for name, content in files.items() if not name.endswith(".safetensors")
    }
    hub.commits[commit("pickled")] = pickled | {"pytorch_model.bin": b"\x80"}
    hub.branches["pickled"] = commit("pickled")
    text = pods.refusal(pods.pod(), **({"uri": URI} | source))
    assert refusal in text
    assert message in text
    assert hub.read("pytorch_model.bin") == 0


def test_a_gated_model_says_what_to_do(pods: Pods, hub: FakeHub) -> None:
    hub.gated = True
    text = pods.refusal(pods.pod())
    assert "ModelAccessDenied" in text
    assert "Accept its terms on its page" in text
