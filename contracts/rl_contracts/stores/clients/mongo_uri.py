"""Checks the URI of the document store.

The writer of a namespace's Secret chooses the URI, and pods of that namespace and the console
connect with it. So the URI must not use files or the identity of the connecting process, which
would show its credentials to a server of the writer's choice.
"""

from __future__ import annotations

from pymongo.uri_parser import parse_uri, split_options

from rl_contracts.stores.clients.settings import malformed

SRV = "mongodb+srv:"
SHOWS_THE_SECRET = ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "MONGODB-X509")
"""Mechanisms with credentials in the URI or in ``mongoClientCertificate``. The others
(``MONGODB-OIDC``, ``MONGODB-AWS``, ``GSSAPI``) use the credentials of the process."""
FILES = ("tlsCAFile", "tlsCertificateKeyFile", "tlsCRLFile")


def check(uri: str) -> None:
    """Check a URI without connecting or opening a file.

    Raises:
        RefusedError: it uses an identity or a file of the connecting process.
        ConfigurationError: it is invalid, or its options contradict each other.
        ValueError: an option has an invalid value.
    """
    query = uri.partition("?")[2]  # split as the driver does
    options = split_options(query, validate=False) if query else {}
    _refuse({name.lower(): str(value) for name, value in options.items()})
    if not uri.startswith(SRV):  # parsing mongodb+srv would resolve names
        parse_uri(uri, warn=False)  # warn=False: the client would silently drop unknown options
    elif query:
        split_options(query)


def _refuse(options: dict[str, str]) -> None:
    mechanism = options.get("authmechanism")
    if mechanism is not None and mechanism not in SHOWS_THE_SECRET:
        raise malformed(
            f"mongoUri: authMechanism={mechanism[:40]} does not use credentials of the Secret; "
            f"use one of {', '.join(SHOWS_THE_SECRET)}"
        )
    for name in FILES:
        if name.lower() in options:
            raise malformed(
                f"mongoUri: {name} names a file of the connecting pod; put certificates into "
                "mongoCa and mongoClientCertificate"
            )
