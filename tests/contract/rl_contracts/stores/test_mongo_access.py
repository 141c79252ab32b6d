"""TLS, passwords and replica sets of the document store, through a front that adds them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo.errors import ProtocolError

from rl_contracts.documents.task import Queue
from rl_contracts.errors import AccessDeniedError, RefusedError, StoreUnavailableError
from rl_contracts.stores.clients.deployment import Deployment
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.network.authority import Authority
from tests.network.mongo_front import Front, front_of
from tests.samples.documents import RUN, a_rollout, a_run, a_task
from tests.servers import StoreServer

# pymongo drops the socket of a failed handshake without closing it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")

USER, PASSWORD = "trainer", "s3cret/with:signs"
ESCAPED = "s3cret%2Fwith%3Asigns"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def reach(store_server: StoreServer, store_settings: StoreSettings) -> Iterator[Any]:
    """Makes a front and stores that talk to it."""
    with ExitStack() as stack:

        def make(
            uri: str = "mongodb://127.0.0.1:{port}/",
            patience: float = 20.0,
            settings: dict[str, str] | None = None,
            **options: Any,
        ) -> tuple[Stores, Front]:
            backend = urlsplit(store_server.uri).port
            assert backend is not None
            front = stack.enter_context(front_of(backend, **options))
            values = store_settings.to_mapping() | {"mongoUri": uri.format(port=front.port)}
            chosen = StoreSettings.from_mapping(values | (settings or {}))
            stores = Stores.connect(chosen, patience_seconds=patience)
            stack.callback(stores.close)
            return stores, front

        yield make


def test_own_authority_client_certificate_and_password(
    reach: Any, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    stores, _ = reach(
        f"mongodb://{USER}:{ESCAPED}@127.0.0.1:{{port}}/?authSource=admin",
        settings={"mongoCa": authority.pem, "mongoClientCertificate": authority.issue("me").both},
        context=authority.context(tmp_path, client_wanted=True),
        user=(USER, PASSWORD),
    )
    stores.mongo.ensure_indexes()
    stores.runs.create(a_run())
    stores.tasks.insert([a_task()])
    claimed = stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="me", lease_seconds=60)
    assert claimed is not None
    assert list((tmp_path / "files").iterdir()) == [], "a private key was left there"


def test_a_replica_set_is_written_and_read_by_majority_with_retries(reach: Any) -> None:
    weak = "mongodb://127.0.0.1:{port}/?replicaSet=rs0&w=1&readPreference=secondaryPreferred"
    stores, front = reach(weak + "&retryWrites=false", role="primary")
    stores.tasks.insert([a_task()])
    stores.rollouts.put([a_rollout(a_task())])
    assert stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="me", lease_seconds=60)
    assert stores.rollouts.get([a_rollout(a_task()).id])
    writes = [*front.of("insert"), *front.of("update"), *front.of("findAndModify")]
    assert len(writes) >= 3
    for write in writes:
        assert write["writeConcern"] == {"w": "majority", "j": True, "wtimeout": 10_000}
        assert "txnNumber" in write  # the driver's own retry is on
    for command in front.of("find"):
        assert command["readConcern"] == {"level": "majority"}
        assert command.get("$readPreference", {"mode": "primary"})["mode"] == "primary"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"mongod": True}, Deployment.STANDALONE),
        ({"mongod": True, "role": "primary"}, Deployment.ONE_MEMBER),
        ({"mongod": True, "persistent": True}, Deployment.STANDALONE),
        ({"mongod": True, "persistent": False}, Deployment.IN_MEMORY),
        ({}, Deployment.EMBEDDED),
    ],
)
def test_a_server_that_can_lose_its_runs_is_told_from_a_replica_set(
    reach: Any, options: dict[str, Any], wanted: Deployment
) -> None:
    stores, front = reach(**options)
    assert stores.mongo.deployment() is wanted
    stores.runs.create(a_run())
    (write,) = front.of("insert")
    assert write["writeConcern"]["j"], "a standalone server would acknowledge from memory"


BROKEN_TLS: dict[str, tuple[dict[str, Any], str]] = {
    "another authority": ({"trusted": False}, "into mongoCa of the stores' Secret"),
    "expired": ({"expired": True}, "Renew the server's certificate"),
    "no client certificate": ({"client_wanted": True}, "mongoClientCertificate"),
}


@pytest.mark.parametrize(("how", "remedy"), BROKEN_TLS.values(), ids=BROKEN_TLS)
def test_a_failed_handshake_says_what_to_do(
    reach: Any, authority: Authority, tmp_path: Path, how: dict[str, Any], remedy: str
) -> None:
    trusted = authority if how.pop("trusted", True) else Authority()
    stores, _ = reach(
        patience=2, settings={"mongoCa": trusted.pem}, context=authority.context(tmp_path, **how)
    )
    with pytest.raises(StoreUnavailableError, match=remedy):
        stores.mongo.ping()


def test_a_hung_up_plain_connection_suggests_tls(
    reach: Any, authority: Authority, tmp_path: Path
) -> None:
    stores, _ = reach(patience=2, context=authority.context(tmp_path))
    with pytest.raises(StoreUnavailableError, match="add tls=true to mongoUri"):
        stores.mongo.ping()


def test_a_server_without_tls_says_so(
    reach: Any, store_server: StoreServer, authority: Authority
) -> None:
    stores, _ = reach(store_server.uri, patience=2, settings={"mongoCa": authority.pem})
    with pytest.raises(StoreUnavailableError, match=r"SSL|TLS"):
        stores.mongo.ping()


def test_a_server_of_another_kind_says_so(reach: Any, store_settings: StoreSettings) -> None:
    address = urlsplit(store_settings.s3_endpoint).netloc
    stores, _ = reach(f"mongodb://{address}/", patience=2)
    with pytest.raises(StoreUnavailableError, match="correct host and port of mongoUri"):
        stores.mongo.ping()


def test_an_answer_of_another_kind_of_server_is_retried(reach: Any) -> None:
    stores, _ = reach()
    answers: Iterator[Exception | str] = iter(
        [ProtocolError("Got response id 808465440 but expected 1"), "alive"]
    )

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert stores.mongo.call("asking", ask) == "alive"


@pytest.mark.parametrize("credentials", [f"{USER}:wrong@", f"nobody:{ESCAPED}@"])
def test_a_wrong_login_is_refused_at_once(reach: Any, credentials: str) -> None:
    uri = f"mongodb://{credentials}127.0.0.1:{{port}}/?authSource=admin"
    stores, _ = reach(uri, patience=60, user=(USER, PASSWORD))
    with pytest.raises(AccessDeniedError, match="Correct user, password or authSource") as refused:
        stores.runs.get(RUN)
    assert "wrong" not in str(refused.value)


def test_a_missing_login_is_refused_at_once(reach: Any) -> None:
    stores, _ = reach(patience=60, user=(USER, PASSWORD))
    with pytest.raises(AccessDeniedError, match="role readWrite"):
        stores.runs.create(a_run())


@pytest.mark.parametrize("query", ["?directConnection=true", "?replicaSet=rs0"])
def test_a_member_that_is_not_primary_names_the_remedy(reach: Any, query: str) -> None:
    stores, _ = reach("mongodb://127.0.0.1:{port}/" + query, patience=2, role="secondary")
    with pytest.raises(StoreUnavailableError, match="Name all members of the replica set"):
        stores.runs.create(a_run())


def test_another_replica_set_is_named(reach: Any) -> None:
    stores, _ = reach("mongodb://127.0.0.1:{port}/?replicaSet=rs1", patience=2, role="primary")
    with pytest.raises(StoreUnavailableError, match="replicaSet"):
        stores.mongo.ping()


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(RefusedError, match=words) as error:
        yield
    assert PASSWORD not in str(error.value)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("mongodb://u:s3cret/with:signs@h/", "not a MongoDB URI"),
        ("mongodb://h/?tls=false", "tls=false"),
        ("mongodb://h/?w=majority&directConnection=true&replicaSet=a,b", ""),
        ("mongodb://h1,h2/?directConnection=true", "options contradict"),
        ("mongodb://h/?authMechanism=nonsense", "mongoUri"),
    ],
)
def test_a_malformed_uri_is_refused_without_its_password(
    store_settings: StoreSettings, authority: Authority, uri: str, words: str
) -> None:
    values = store_settings.to_mapping() | {"mongoUri": uri, "mongoCa": authority.pem}
    settings = StoreSettings.from_mapping(values)
    if not words:
        Stores.connect(settings).close()
        return
    with refused(words):
        Stores.connect(settings)
