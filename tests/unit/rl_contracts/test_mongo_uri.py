"""Whoever writes the stores' Secret gets neither the operator's identity nor its files."""

from __future__ import annotations

import pytest

from rl_contracts.errors import RefusedError
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings


def connect(uri: str) -> None:
    settings = StoreSettings.from_mapping(
        {
            "mongoUri": uri,
            "mongoDatabase": "rl_team",
            "s3Endpoint": "http://s3",
            "s3Bucket": "abc",
            "s3AccessKey": "key",
            "s3SecretKey": "secret",
        }
    )
    Mongo(settings).close()


@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv"])
@pytest.mark.parametrize(
    ("query", "words"),
    [
        # pymongo then sends the service account's token to the server that the URI names.
        ("authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s", "MONGODB-OIDC"),
        ("AUTHMECHANISM=MONGODB-OIDC;authMechanismProperties=ENVIRONMENT:azure", "MONGODB-OIDC"),
        ("authMechanism=MONGODB%2DOIDC", "MONGODB-OIDC"),
        ("authMechanism=MONGODB-AWS", "MONGODB-AWS"),
        ("authMechanism=GSSAPI", "GSSAPI"),
        ("tls=true&tlsCAFile=/proc/self/environ", "tlsCAFile names a file"),
        # Nobody ever writes to it: reading it would hold the operator up for good.
        ("tls=true&TLSCAFILE=/dev/ptmx", "tlsCAFile names a file"),
        ("tls=true&tlsCertificateKeyFile=/no/such/file", "tlsCertificateKeyFile names a file"),
        ("tls=true&tlsCRLFile=/no/such/file", "tlsCRLFile names a file"),
        ("noSuchOption=1", "options contradict"),
    ],
)
def test_uris_that_use_identity_or_files_of_the_process_are_refused(
    scheme: str, query: str, words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        connect(f"{scheme}://rl:s3cret@db.example/?{query}")
    assert refused.value.refusal.reason == "StoresSecretMalformed"
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?tls=true&retryWrites=false",
        "?authMechanism=SCRAM-SHA-256&authSource=admin",
        "?authMechanism=PLAIN&authSource=$external",
    ],
)
def test_uris_with_credentials_of_the_secret_are_accepted(query: str) -> None:
    connect(f"mongodb://rl:s3cret@db.example/{query}")
    connect(f"mongodb+srv://rl:s3cret@db.example/{query}")
