"""Real store and bucket servers for tests: the embedded ones, started as processes.

Another MongoDB or S3 takes their place where ``RL_TEST_MONGO_*`` or ``RL_TEST_S3_*`` names it: see
``OTHER_STORES``.
"""

from __future__ import annotations

import functools
import os
import random
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects
from tests.waiting import HUNG_SECONDS

ROOT = Path(__file__).resolve().parents[1]
BUCKET = "rl-data"
SELDOM = {"GOGC": "400", "GOMEMLIMIT": "10GiB"}
"""Of servers in Go: they collect garbage a fourth as often, for some hundred megabytes. At the
default it takes a quarter of the API server's time. Without the limit an API server with 5,000 jobs
takes 19 GB.
"""
NEVER = {"GOGC": "off"}
"""Of commands in Go that end in a second."""


PORTS = range(11_000, 30_000)
"""Not those that the kernel gives to connections: one of these could take a port found free."""
_given: set[int] = set()


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on; no two calls give the same."""
    while True:
        port = random.choice(PORTS)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@functools.cache
def deaf_port() -> int:
    """A TCP port that refuses connections: this process holds it to its end and never listens."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    port = int(held.getsockname()[1])
    held.detach()  # the kernel closes it
    return port


@functools.cache
def binary(name: str) -> str:
    """Path of a server's binary, built when missing."""
    completed = subprocess.run(
        [sys.executable, "-m", "rl_local", "bin", name],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "local")},
    )
    return completed.stdout.strip()


@dataclass
class Server:
    """One server process that can be killed and started again on the same port and data."""

    command: list[str]
    ready_url: str
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def launch(self) -> None:
        """Start it without waiting until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=SELDOM | os.environ | self.environment
            )

    def start(self) -> None:
        self.launch()
        assert self.process is not None
        deadline = time.monotonic() + HUNG_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"{self.command[0]} did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            # Whom it trusts is the matter of the tests, not of its start.
            unchecked = ssl._create_unverified_context()
            with urllib.request.urlopen(self.ready_url, timeout=2, context=unchecked):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=HUNG_SECONDS)
            self.process = None


@dataclass
class StoreServer:
    """The embedded document store."""

    server: Server
    uri: str


@dataclass
class MinioServer:
    """The embedded bucket server."""

    server: Server
    endpoint: str
    access_key: str
    secret_key: str


@contextmanager
def running_store(folder: Path) -> Iterator[StoreServer]:
    """A document store of one's own, which may be killed."""
    port, health = free_port(), free_port()
    server = Server(
        command=[
            binary("store"),
            "--listen",
            f"127.0.0.1:{port}",
            "--state-dir",
            str(folder / "data"),
            "--health-listen",
            f"127.0.0.1:{health}",
        ],
        ready_url=f"http://127.0.0.1:{health}/healthz",
        log=folder / "store.log",
        environment={"TMPDIR": str(folder)},
    )
    (folder / "data").mkdir()
    with server:
        yield StoreServer(server=server, uri=f"mongodb://127.0.0.1:{port}/")


@contextmanager
def running_minio(
    folder: Path,
    *,
    certificates: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[MinioServer]:
    """A bucket server of one's own, which may be killed.

    Args:
        folder: where its data go.
        certificates: folder with ``public.crt`` and ``private.key``: it speaks TLS.
        environment: more of MinIO's settings.
    """
    port = free_port()
    access, secret = "tester", secrets.token_hex(16)
    scheme = "https" if certificates else "http"
    certs = certificates or folder / "no-certificates"
    server = Server(
        command=[
            binary("minio"),
            "server",
            "--certs-dir",
            str(certs),
            "--address",
            f"127.0.0.1:{port}",
            str(folder / "data"),
        ],
        ready_url=f"{scheme}://127.0.0.1:{port}/minio/health/live",
        log=folder / "minio.log",
        environment={
            "MINIO_ROOT_USER": access,
            "MINIO_ROOT_PASSWORD": secret,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            **(environment or {}),
        },
    )
    with server:
        endpoint = f"{scheme}://127.0.0.1:{port}"
        yield MinioServer(server=server, endpoint=endpoint, access_key=access, secret_key=secret)


def settings_of(store: StoreServer, minio: MinioServer, *, bucket: str = BUCKET) -> StoreSettings:
    """Settings of a database of its own, in a bucket that is there."""
    name = secrets.token_hex(4)
    return StoreSettings.from_mapping(
        {
            "mongoUri": store.uri,
            "mongoDatabase": f"rl_{name}",
            "s3Endpoint": minio.endpoint,
            "s3Bucket": bucket,
            "s3Prefix": f"{name}/",
            "s3AccessKey": minio.access_key,
            "s3SecretKey": minio.secret_key,
        }
    )


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A document store for the whole session; do not kill it."""
    with running_store(tmp_path_factory.mktemp("store")) as started:
        yield started


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """A bucket server for the whole session; do not kill it."""
    with running_minio(tmp_path_factory.mktemp("minio")) as started:
        yield started


OTHER_STORES = {
    "RL_TEST_MONGO_URI": "mongoUri",
    "RL_TEST_MONGO_CA": "mongoCa",
    "RL_TEST_MONGO_CLIENT_CERTIFICATE": "mongoClientCertificate",
    "RL_TEST_S3_ENDPOINT": "s3Endpoint",
    "RL_TEST_S3_BUCKET": "s3Bucket",
    "RL_TEST_S3_ACCESS_KEY": "s3AccessKey",
    "RL_TEST_S3_SECRET_KEY": "s3SecretKey",
    "RL_TEST_S3_REGION": "s3Region",
    "RL_TEST_S3_CA": "s3Ca",
    "RL_TEST_S3_ADDRESSING_STYLE": "s3AddressingStyle",
}
"""Environment variables and the keys of the Secret that they replace; PEM values name a file."""
PEM_KEYS = ("mongoCa", "mongoClientCertificate", "s3Ca")


def other_stores(environ: Mapping[str, str]) -> dict[str, str]:
    """Keys of the Secret that the environment replaces."""
    given = {key: environ[name] for name, key in OTHER_STORES.items() if environ.get(name)}
    return {
        key: Path(value).read_text() if key in PEM_KEYS else value for key, value in given.items()
    }


@pytest.fixture
def store_settings(store_server: StoreServer, minio_server: MinioServer) -> Iterator[StoreSettings]:
    """A fresh database and prefix, on the embedded servers or on those of OTHER_STORES."""
    with fresh_settings(store_server, minio_server) as settings:
        yield settings


@contextmanager
def fresh_settings(store_server: StoreServer, minio_server: MinioServer) -> Iterator[StoreSettings]:
    """Of a database and a prefix that are removed from servers that stay."""
    others = other_stores(os.environ)
    settings = StoreSettings.from_mapping(
        settings_of(store_server, minio_server).to_mapping() | others
    )
    yield settings
    if any(key.startswith("mongo") for key in others):
        with closing(Mongo(settings, patience_seconds=20)) as mongo:
            mongo.drop_database()
    if any(key.startswith("s3") for key in others):
        Objects(settings, patience_seconds=20).delete_prefix(settings.s3_prefix)


@pytest.fixture
def stores(store_settings: StoreSettings) -> Iterator[Stores]:
    """Connected stores on a fresh database, with indexes and the bucket made."""
    with connected_stores(store_settings) as connected:
        yield connected


@contextmanager
def connected_stores(settings: StoreSettings) -> Iterator[Stores]:
    """With indexes and the bucket made."""
    connected = Stores.connect(settings, patience_seconds=20)
    connected.tasks.unchanged_seconds = 0.0  # no test waits for half a minute
    connected.mongo.ensure_indexes()
    connected.objects.make_bucket()
    yield connected
    connected.close()
