"""Remedies for store errors, chosen by the client's message or error code."""

from __future__ import annotations

from collections.abc import Mapping

_AUTHORITY = (
    "Put the PEM of the authority that signed the server's certificate into {ca} of the stores' "
    "Secret."
)
_NAME = "Use a name in {address} that the server's certificate contains."
_CLIENT = "The server wants a client certificate: set mongoClientCertificate."
_NO_TLS = "The server does not use TLS on this port: correct the port or scheme of {address}."
TLS: Mapping[str, str] = {
    "certificate has expired": "Renew the server's certificate: it has expired.",
    "certificate is not yet valid": "Check the clocks: the server's certificate is not valid yet.",
    "Hostname mismatch": _NAME,
    "IP address mismatch": _NAME,
    "doesn't match": _NAME,
    "CERTIFICATE_VERIFY_FAILED": _AUTHORITY,
    "certificate required": _CLIENT,
    "handshake failure": _CLIENT,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "wrong version number": _NO_TLS,
    "record layer failure": _NO_TLS,
    "HTTP request to an HTTPS server": "Use https in {address}: the server uses TLS.",
}
"""By a part of OpenSSL's or the server's message; ``{ca}`` and ``{address}`` are keys of the
Secret."""

_HUNG_UP = "If the server wants TLS, add tls=true to mongoUri or set mongoCa."
_NOT_PRIMARY = (
    "Name all members of the replica set and replicaSet=… in mongoUri, without directConnection; "
    "if they are named, start a majority of them."
)
MONGO: Mapping[str, str] = {
    **TLS,
    "not primary": _NOT_PRIMARY,
    "not master": _NOT_PRIMARY,
    "No primary available": _NOT_PRIMARY,
    "No replica set members": _NOT_PRIMARY,
    "replica set name": "Correct replicaSet=… in mongoUri.",
    "EOF occurred": "If the server wants a client certificate, set mongoClientCertificate.",
    "connection closed": _HUNG_UP,
    "Connection reset": _HUNG_UP,
    "Got response id": "The server that answers is not MongoDB: correct host and port of mongoUri.",
    "DNS": "Correct the host name in mongoUri.",
}
MONGO_CODES: Mapping[int, str] = {
    8000: "Correct user, password or authSource in mongoUri.",
    18: "Correct user, password or authSource in mongoUri.",
    11: "Correct user, password or authSource in mongoUri.",
    13: "Grant the user of mongoUri the role readWrite on the database that mongoDatabase names.",
}
"""By the server's error code."""

_NO_S3 = "The server that answers is not S3: correct host and port of {address}, or the server."
S3: Mapping[str, str] = {**TLS, "non-XML response": _NO_S3, "ParseError": _NO_S3}
S3_WITHOUT_TLS: Mapping[str, str] = {
    **S3,
    "Connection reset": "Use https in {address} if the server uses TLS.",
}
"""For an http endpoint: a server that uses TLS may hang up before its answer has been read."""
_KEYS = "Correct s3AccessKey and s3SecretKey."
S3_CODES: Mapping[str, str] = {
    "AccessDenied": "Correct s3AccessKey and s3SecretKey, or permit them to read, write, list and "
    "delete in the bucket.",
    "AuthorizationHeaderMalformed": "Set s3Region to the region of the bucket.",
    "ExpiredToken": _KEYS,
    "InvalidAccessKeyId": _KEYS,
    "InvalidRegion": "Set s3Region to the region of the bucket.",
    "InvalidToken": _KEYS,
    "InvalidTokenId": _KEYS,
    "PermanentRedirect": "Set s3Region and s3Endpoint to those of the bucket.",
    "RequestTimeTooSkewed": "Check the clocks: the server's clock differs from this machine's.",
    "SignatureDoesNotMatch": _KEYS,
}
"""By the server's error code; all of these reject the credentials or the request."""
_ROLE = (
    "Check the clocks and the role of the pod's service account: the bucket rejects the "
    "credentials that the pod's identity is exchanged for."
)
S3_IDENTITY_CODES: Mapping[str, str] = {
    **S3_CODES,
    "AccessDenied": "Permit the role of the pod's service account to read, write, list and delete "
    "in the bucket.",
    **{code: _ROLE for code, advice in S3_CODES.items() if advice is _KEYS},
}
"""As ``S3_CODES``, where the Secret has no keys."""
S3_EXPIRED = {"ExpiredToken", "InvalidToken", "InvalidTokenId"}
"""Codes that reject temporary credentials, which others may replace."""

_OTHER_BUCKET = "Use a bucket or a server that allows it: s3Bucket, s3Endpoint."
S3_REFUSED: Mapping[str, str] = {
    "BadRequest": _OTHER_BUCKET,
    "EntityTooLarge": _OTHER_BUCKET,
    "InvalidArgument": _OTHER_BUCKET,
    "InvalidBucketName": "Correct s3Bucket.",
    "InvalidObjectState": "Restore the object from its archive, or use another storage class.",
    "InvalidRequest": _OTHER_BUCKET,
    "KeyTooLongError": "Shorten s3Prefix.",
    "MethodNotAllowed": _OTHER_BUCKET,
    "NotImplemented": _OTHER_BUCKET,
}
"""By the server's error code; requests that no repetition helps."""

_FULL = (
    "The bucket is full: enlarge it or its quota, or lower weightSync.keepLast or "
    "training.checkpoint.keepLast."
)
S3_FULL: Mapping[str, str] = dict.fromkeys(
    (
        "InsufficientCapacity",
        "QuotaExceeded",
        "XMinioAdminBucketQuotaExceeded",
        "XMinioStorageFull",
    ),
    _FULL,
)
"""By the server's error code; space may become free, so these are retried."""


def remedy(text: str, known: Mapping[str, str], *, ca: str, address: str) -> str:
    """The remedy of the first ``known`` phrase in ``text``; empty when there is none."""
    for phrase, advice in known.items():
        if phrase in text:
            return advice.format(ca=ca, address=address)
    return ""
