"""Where the stores are and who we are there: parsed once from the namespace's Secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.alias_generators import to_camel

from rl_contracts.errors import Refusal, RefusedError


class StoreSettings(BaseModel):
    """Contents of the Secret ``rl-operator-stores``; each field is a key in camelCase.

    Printing or logging it shows no secret.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
        extra="ignore", frozen=True, hide_input_in_errors=True,
    )  # fmt: skip

    mongo_uri: SecretStr
    mongo_database: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    s3_endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+$")]
    s3_bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    s3_prefix: Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+/)*$")] = ""
    """Empty, or ends with a slash."""
    s3_access_key: SecretStr
    s3_secret_key: SecretStr
    s3_region: str = "us-east-1"

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
            named = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems)
            raise RefusedError(
                Refusal(
                    field="spec.storage.secretName",
                    value="",
                    reason="StoresSecretMalformed",
                    message=f"The Secret of the stores has missing or malformed keys: {named}.",
                    remedy="Set these keys of the Secret.",
                )
            ) from error
