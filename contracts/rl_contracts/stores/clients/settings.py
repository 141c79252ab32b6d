"""Addresses and credentials of the stores, parsed from the namespace's Secret."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rl_contracts.addresses import host_of, is_metadata
from rl_contracts.errors import Refusal, RefusedError


class StoreSettings(BaseModel):
    """Contents of the Secret ``rl-operator-stores``; each field is a key in camelCase.

    Printing or logging it never shows a secret value.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    mongo_uri: SecretStr
    mongo_database: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    mongo_ca: str = ""
    """PEM certificates of the authorities to trust for the server's certificate, and no others;
    enables TLS. Empty: the system's authorities."""
    mongo_client_certificate: SecretStr = SecretStr("")
    """PEM client certificate with private key; enables TLS."""
    s3_endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+$")]
    s3_bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    s3_prefix: Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+/)*$")] = ""
    """Empty, or ends with a slash."""
    s3_access_key: SecretStr = SecretStr("")
    s3_secret_key: SecretStr = SecretStr("")
    """Both, or none: then the pod's identity is exchanged for credentials."""
    s3_region: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "us-east-1"
    s3_ca: str = ""
    """PEM certificates, as ``mongo_ca``; the endpoint must be https."""
    s3_addressing_style: Literal["auto", "path", "virtual"] = "auto"
    """``path``: ``https://host/bucket/key``; ``virtual``: ``https://bucket.host/key``; ``auto``:
    virtual on AWS, else path."""

    @field_validator("s3_endpoint")
    @classmethod
    def _leads_to_no_node(cls, endpoint: str) -> str:
        if is_metadata(host_of(endpoint)):
            raise ValueError("is an address where a node finds its own credentials")
        return endpoint

    @field_validator("mongo_ca", "s3_ca")
    @classmethod
    def _certificates(cls, pem: str) -> str:
        if pem:
            try:
                ssl.create_default_context(cadata=pem)
            except ssl.SSLError:
                raise ValueError("is not a certificate in PEM format") from None
        return pem

    @field_validator("s3_access_key", "s3_secret_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value()
        if not (text and text.isascii() and text.isprintable()):
            raise ValueError("must be printable ASCII and not empty")
        return key

    @field_validator("mongo_client_certificate")
    @classmethod
    def _certificate_and_key(cls, pem: SecretStr) -> SecretStr:
        text = pem.get_secret_value()
        if text and not ("BEGIN CERTIFICATE" in text and "PRIVATE KEY-" in text):
            raise ValueError("must hold a certificate and its private key in PEM format")
        return pem

    @model_validator(mode="after")
    def _keys_are_whole(self) -> Self:
        if bool(self.s3_access_key.get_secret_value()) != self.has_keys:
            raise ValueError("s3AccessKey and s3SecretKey must both be set, or none of them")
        if not (self.has_keys or self._has_password):
            raise ValueError(
                "without s3SecretKey mongoUri must have a password, or mongoClientCertificate be "
                "set: pods derive the keys of their own messages from it"
            )
        return self

    @model_validator(mode="after")
    def _ca_has_a_use(self) -> Self:
        if self.s3_ca and self.s3_endpoint.startswith("http:"):
            raise ValueError("s3Ca is set, but s3Endpoint is not https")
        return self

    @property
    def has_keys(self) -> bool:
        """Whether the Secret has keys for the bucket."""
        return bool(self.s3_secret_key.get_secret_value())

    @property
    def _has_password(self) -> bool:
        user = self.mongo_uri.get_secret_value().partition("://")[2].rpartition("@")[0]
        return bool(user.partition(":")[2] or self.mongo_client_certificate.get_secret_value())

    def shared_token(self, purpose: str) -> str:
        """Derive a token that only holders of the Secret can compute.

        Args:
            purpose: what the token is for; each purpose has its own token.
        """
        secret = self.s3_secret_key.get_secret_value() or (
            self.mongo_uri.get_secret_value() + self.mongo_client_certificate.get_secret_value()
        )
        return hmac.new(secret.encode(), f"rl-operator/{purpose}".encode(), "sha256").hexdigest()

    @classmethod
    def from_folder(cls, folder: Path) -> StoreSettings:
        """Read a mounted Secret, which has a file for each key.

        Raises:
            RefusedError: a key is missing or malformed; the message names it without its value.
        """
        keys = [field.alias for field in cls.model_fields.values() if field.alias]
        present = {key: folder / key for key in keys if (folder / key).is_file()}
        return cls.from_mapping({key: path.read_text().strip() for key, path in present.items()})

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> StoreSettings:
        """Parse decoded Secret data; raises the errors of ``from_folder``."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False)
            raise malformed(
                "; ".join(_problem(problem["loc"], problem["msg"]) for problem in problems)
            ) from error

    def to_mapping(self) -> dict[str, str]:
        """Keys and plain secret values, for writing the Secret."""
        fields = type(self).model_fields.items()
        values = {info.alias or name: getattr(self, name) for name, info in fields}
        plain = {
            key: value.get_secret_value() if isinstance(value, SecretStr) else value
            for key, value in values.items()
        }
        without = () if self.has_keys else ("s3AccessKey", "s3SecretKey")
        return {key: value for key, value in plain.items() if key not in without}


def malformed(problem: str) -> RefusedError:
    """The error for an unusable Secret; ``problem`` names keys and never shows a value."""
    return RefusedError(
        Refusal(
            field="spec.storage.secretName",
            value="",
            reason="StoresSecretMalformed",
            message=f"The Secret of the stores has missing or malformed keys: {problem}.",
            remedy="Correct these keys of the Secret.",
        )
    )


def _problem(place: tuple[int | str, ...], problem: str) -> str:
    text = problem.removeprefix("Value error, ")
    return f"{'.'.join(map(str, place))}: {text}" if place else text
