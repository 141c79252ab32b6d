"""Where the stores are and who we are there: parsed once from the namespace's Secret."""

from __future__ import annotations

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

from rl_contracts.errors import Refusal, RefusedError


class StoreSettings(BaseModel):
    """Contents of the Secret ``rl-operator-stores``; each field is a key in camelCase.

    Printing or logging it shows no secret.
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
    """PEM certificates of the only authorities that are trusted to sign the server's; turns TLS on.
    Empty: the system's authorities."""
    mongo_client_certificate: SecretStr = SecretStr("")
    """PEM certificate and private key that we show; turns TLS on."""
    s3_endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+$")]
    s3_bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    s3_prefix: Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+/)*$")] = ""
    """Empty, or ends with a slash."""
    s3_access_key: SecretStr
    s3_secret_key: SecretStr
    s3_region: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "us-east-1"
    s3_ca: str = ""
    """PEM certificates, as ``mongo_ca``; the endpoint must be https."""
    s3_addressing_style: Literal["auto", "path", "virtual"] = "auto"
    """``path``: ``https://host/bucket/key``; ``virtual``: ``https://bucket.host/key``; ``auto``:
    virtual on AWS, else path."""

    @field_validator("mongo_ca", "s3_ca")
    @classmethod
    def _certificates(cls, pem: str) -> str:
        if pem:
            try:
                ssl.create_default_context(cadata=pem)
            except ssl.SSLError:
                raise ValueError("holds no certificate in PEM form") from None
        return pem

    @field_validator("s3_access_key", "s3_secret_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value()
        if not (text and text.isascii() and text.isprintable()):
            raise ValueError("must be printable ASCII characters, at least one")
        return key

    @field_validator("mongo_client_certificate")
    @classmethod
    def _certificate_and_key(cls, pem: SecretStr) -> SecretStr:
        text = pem.get_secret_value()
        if text and not ("BEGIN CERTIFICATE" in text and "PRIVATE KEY-" in text):
            raise ValueError("must hold a certificate and its private key in PEM form")
        return pem

    @model_validator(mode="after")
    def _ca_has_a_use(self) -> Self:
        if self.s3_ca and self.s3_endpoint.startswith("http:"):
            raise ValueError("s3Ca is set, but s3Endpoint is not https")
        return self

    @classmethod
    def from_folder(cls, folder: Path) -> StoreSettings:
        """Read a mounted Secret: one file a key.

        Raises:
            RefusedError: naming the missing or malformed key, without its value.
        """
        keys = [field.alias for field in cls.model_fields.values() if field.alias]
        present = {key: folder / key for key in keys if (folder / key).is_file()}
        return cls.from_mapping({key: path.read_text().strip() for key, path in present.items()})

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> StoreSettings:
        """Parse decoded Secret data; raises as from_folder does."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False)
            raise malformed(
                "; ".join(_told(problem["loc"], problem["msg"]) for problem in problems)
            ) from error

    def to_mapping(self) -> dict[str, str]:
        """The keys and values of the Secret, with its secrets: for writing it."""
        fields = type(self).model_fields.items()
        values = {info.alias or name: getattr(self, name) for name, info in fields}
        return {
            key: value.get_secret_value() if isinstance(value, SecretStr) else value
            for key, value in values.items()
        }


def malformed(problem: str) -> RefusedError:
    """The refusal of a Secret that cannot be used; ``problem`` names keys and shows no value."""
    return RefusedError(
        Refusal(
            field="spec.storage.secretName",
            value="",
            reason="StoresSecretMalformed",
            message=f"The Secret of the stores has missing or malformed keys: {problem}.",
            remedy="Set these keys of the Secret.",
        )
    )


def _told(place: tuple[int | str, ...], problem: str) -> str:
    said = problem.removeprefix("Value error, ")
    return f"{'.'.join(map(str, place))}: {said}" if place else said
