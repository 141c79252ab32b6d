"""A model of the hub comes into the bucket once, as the commit that its run began with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

from rl_contracts.errors import IntegrityError, StoreUnavailableError
from rl_contracts.hub import model_import
from rl_contracts.hub.credential import HubCredential
from rl_contracts.spec.data import ModelSource
from rl_contracts.stores.files.model_folder import BaseLocations
from tests.contract.rl_contracts.hub.hub_pods import (
    NEW,
    OLD,
    TOKEN,
    URI,
    Pods,
    Reporter,
    content,
    loadable,
)
from tests.network.hub import REPO, FakeHub


def test_the_fake_hub_serves_the_real_client(hub: FakeHub, tmp_path: Path) -> None:
    hub.cuts = 1
    folder = snapshot_download(
        REPO, revision="v1", endpoint=hub.url, token=False, local_dir=tmp_path / "all"
    )
    downloaded = {name: (Path(folder) / name).read_bytes() for name in hub.commits[OLD]}
    assert downloaded == hub.commits[OLD]


def test_a_model_is_read_from_the_hub_once_by_commit(
    pods: Pods, hub: FakeHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    first = pods.pod("a").base(ModelSource(uri=URI))
    assert (first.model.manifest_uri, first.model.commit, first.tokenizer) == (URI, OLD, None)
    assert content(pods.stores, first, tmp_path / "base") == loadable(files)
    asked = len(hub.requests)
    assert not any(path.endswith((".md", ".py")) for _, path, _ in hub.requests)
    assert {authorization for _, _, authorization in hub.requests} == {""}
    hub.branches["main"] = NEW
    assert pods.pod("b").base(ModelSource(uri=URI)) == first, "the branch has moved"
    assert len(hub.requests) == asked, "nobody asks the hub again"
    other = pods.pod("c", run="33333333-4444").base(ModelSource(uri=URI))
    assert other.model.commit == NEW
    same = pods.pod("d", run="55555555-6666").base(ModelSource(uri=URI, revision="v1"))
    assert same == first, "runs share what is in the bucket"
    assert hub.read("model.safetensors") == 2, "one for each commit"


def test_pods_that_come_at_once_take_the_same_commit(pods: Pods, hub: FakeHub) -> None:
    def move() -> None:
        hub.branches["main"] = NEW

    progress = [Reporter(at={"importing": move}) for _ in range(4)]
    makers = [pods.pod(f"pod-{n}", progress=reporter) for n, reporter in enumerate(progress)]
    with ThreadPoolExecutor(len(makers)) as pool:
        locations = list(pool.map(lambda pod: pod.base(ModelSource(uri=URI)), makers))
    assert {location.model.commit for location in locations} == {OLD}
    assert hub.read("model.safetensors") == 1
    waited = [
        reporter
        for reporter in progress
        if any("waiting for another pod" in word for word in reporter.phases)
    ]
    assert len(waited) == 3


def test_an_earlier_pin_of_another_pod_counts(pods: Pods, hub: FakeHub) -> None:
    """A pod that lost its lease, or its life, after it had asked for the commit."""

    def lose() -> None:
        raise StoreUnavailableError(store="test", doing="dying", cause="killed")

    with pytest.raises(StoreUnavailableError):
        pods.pod("a", progress=Reporter(at={"importing": lose})).base(ModelSource(uri=URI))
    hub.branches["main"] = NEW
    locations = pods.pod("a").base(ModelSource(uri=URI))
    assert locations.model.commit == OLD


def test_two_pods_that_hold_the_lease_do_no_harm(
    pods: Pods,
    hub: FakeHub,
    files: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_import, "LEASE_SECONDS", -1.0)
    other = pods.pod("b")
    locations: list[BaseLocations] = []

    def overtake() -> None:
        hub.branches["main"] = NEW
        if not locations:
            locations.append(other.base(ModelSource(uri=URI)))

    mine = pods.pod("a", progress=Reporter(at={"asking": overtake})).base(ModelSource(uri=URI))
    assert mine == locations[0]
    assert content(pods.stores, mine, tmp_path / "base")["config.json"] == files["config.json"]


def test_a_wait_for_another_pod_ends_with_its_reason(pods: Pods) -> None:
    def late() -> None:
        with pytest.raises(
            StoreUnavailableError, match="waiting for another pod to import hf://org/tiny"
        ):
            pods.pod("b", wait_seconds=0.0).base(ModelSource(uri=URI))

    pods.pod("a", progress=Reporter(at={"asking": late})).base(ModelSource(uri=URI))


def test_broken_connections_and_failures_are_retried(
    pods: Pods, hub: FakeHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.cuts, hub.failures = 3, 2
    locations = pods.pod().base(ModelSource(uri=URI))
    assert content(pods.stores, locations, tmp_path / "base") == loadable(files)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_that_differ_from_the_hubs_description_are_refused(
    pods: Pods, hub: FakeHub, name: str
) -> None:
    hub.damaged = frozenset({name})
    with pytest.raises(IntegrityError, match=f"{name} has another digest than the hub says"):
        pods.pod().base(ModelSource(uri=URI))
    stored = pods.stores.objects.list(f"{pods.stores.objects.prefix}models/")
    assert not any(item.key.endswith(name) for item in stored)
    hub.damaged = frozenset()
    assert pods.pod().base(ModelSource(uri=URI)).model.commit == OLD


def test_files_deleted_from_the_bucket_are_imported_again(
    pods: Pods, hub: FakeHub, files: dict[str, bytes], tmp_path: Path
) -> None:
    first = pods.pod().base(ModelSource(uri=URI))
    hub.branches["main"] = NEW
    pods.stores.objects.delete_prefix(f"{pods.stores.objects.prefix}models/")
    assert pods.pod().base(ModelSource(uri=URI)) == first
    assert content(pods.stores, first, tmp_path / "base") == loadable(files)


def test_damaged_files_in_the_bucket_are_refused(pods: Pods, tmp_path: Path) -> None:
    locations = pods.pod().base(ModelSource(uri=URI))
    objects = pods.stores.objects
    key = next(
        stored_object.key
        for stored_object in objects.list(f"{objects.prefix}models/")
        if "config" in stored_object.key
    )
    objects.put(key, objects.get(key)[:-1] + b"!")
    with pytest.raises(IntegrityError, match="has digest"):
        content(pods.stores, locations, tmp_path / "base")


def test_a_tokenizer_is_imported_without_weights(pods: Pods, hub: FakeHub) -> None:
    source = ModelSource(uri="s3://bucket/model", tokenizer_uri=f"{URI}@v1")
    locations = pods.pod().base(source)
    assert locations.model.uri == "s3://bucket/model"
    assert locations.tokenizer is not None
    assert locations.tokenizer.commit == OLD
    assert set(locations.tokenizer.files or {}) == {"tokenizer.json", "tokenizer_config.json"} | (
        {"chat_template.jinja"} & set(hub.commits[OLD])
    )
    assert hub.read("model.safetensors") == 0


def test_a_token_opens_a_private_model_and_is_never_shown(
    pods: Pods, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)  # what lies around is not used
    assert "does not exist, or this token has no access" in pods.refusal(pods.pod())
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    opened = pods.pod(token_file=tmp_path / "token").base(ModelSource(uri=URI))
    assert opened.model.commit == OLD


def test_a_token_that_changes_is_used_as_it_is(pods: Pods, hub: FakeHub, tmp_path: Path) -> None:
    hub.token = TOKEN
    file = tmp_path / "token"
    file.write_text("hf_expired")
    models = pods.pod(token_file=file)
    assert "this token has no access" in pods.refusal(models)
    file.write_text(TOKEN)
    assert models.base(ModelSource(uri=URI)).model.commit == OLD


def test_the_identity_of_a_pod_opens_a_private_model(
    pods: Pods, hub: FakeHub, tmp_path: Path
) -> None:
    hub.token, hub.trusts = TOKEN, {"acme": "identity"}
    file = tmp_path / "token"
    file.write_text("identity\n")
    opened = pods.pod(token_file=file, trusted_by="acme").base(ModelSource(uri=URI))
    assert (opened.model.commit, hub.exchanged) == (OLD, 1)
    assert {sent for _, _, sent in hub.requests} == {f"Bearer {TOKEN}"}


def test_an_identity_that_the_hub_does_not_trust_is_refused(
    pods: Pods, hub: FakeHub, tmp_path: Path
) -> None:
    hub.token = TOKEN
    file = tmp_path / "token"
    file.write_text("identity-of-a-pod")
    text = pods.refusal(pods.pod(token_file=file, trusted_by="acme"))
    assert text.startswith("spec.data.hub.trustedPublisher = acme HubIdentityRefused")
    assert "HTTP 400" in text
    assert "identity-of-a-pod" not in text


def test_a_token_for_an_identity_is_replaced_before_it_expires(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.token, hub.trusts = TOKEN, {"acme": "first"}
    file, now = tmp_path / "token", [0.0]
    file.write_text("first")
    credential = HubCredential(hub.url, token_file=file, trusted_by="acme", clock=lambda: now[0])
    assert [credential.token(), credential.token(), hub.exchanged] == [TOKEN, TOKEN, 1]
    file.write_text("second")
    hub.token, hub.trusts, now[0] = "hf_next", {"acme": "second"}, 3301.0
    assert (credential.token(), hub.exchanged) == ("hf_next", 2)


def test_a_silent_hub_is_retried_and_named(pods: Pods, hub: FakeHub) -> None:
    hub.failures = 1000
    with pytest.raises(StoreUnavailableError, match="hub did not answer while resolving"):
        pods.pod().base(ModelSource(uri=URI))
