"""What the URI of the document store may say.

Whoever writes the Secret of a namespace writes the URI, and the operator connects by it. So it may
name neither files of the process that connects nor its identity: a server of the writer's own would
be shown the operator's token.
"""

from __future__ import annotations

from pymongo.uri_parser import parse_uri, split_options

from rl_contracts.stores.clients.settings import malformed

SRV = "mongodb+srv:"
SHOWS_THE_SECRET = ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "MONGODB-X509")
"""Mechanisms whose credentials stand in the URI or in ``mongoClientCertificate``. The others
(``MONGODB-OIDC``, ``MONGODB-AWS``, ``GSSAPI``) look for those of the process."""
FILES = ("tlsCAFile", "tlsCertificateKeyFile", "tlsCRLFile")


def check(uri: str) -> None:
    """Look at all that a URI says, without connecting or opening a file.

    Raises:
        RefusedError: it names an identity or a file of the process that connects.
        ConfigurationError: it cannot be a URI, or its options contradict each other.
        ValueError: an option has no such value.
    """
    query = uri.partition("?")[2]  # as the driver parts it
    options = split_options(query, validate=False) if query else {}
    _refuse({name.lower(): str(value) for name, value in options.items()})
    if not uri.startswith(SRV):  # whose parsing looks names up
        parse_uri(uri, warn=False)  # the client itself would leave out what it does not know
    elif query:
        split_options(query)


def _refuse(options: dict[str, str]) -> None:
    mechanism = options.get("authmechanism")
    if mechanism is not None and mechanism not in SHOWS_THE_SECRET:
        raise malformed(
            f"mongoUri: authMechanism={mechanism[:40]} does not log in by what the Secret holds; "
            f"use one of {', '.join(SHOWS_THE_SECRET)}"
        )
    for name in FILES:
        if name.lower() in options:
            raise malformed(
                f"mongoUri: {name} names a file of whichever pod connects; put certificates into "
                "mongoCa and mongoClientCertificate"
            )
