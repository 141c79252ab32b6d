from __future__ import annotations

import pytest

from rl_contracts.stores.objects import split_uri


@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [
        ("s3://bucket/figs/p.png", "bucket", "figs/p.png"),
        ("s3://bucket/figs/p#1.png", "bucket", "figs/p#1.png"),
        ("s3://bucket/p?versionId=7", "bucket", "p?versionId=7"),
        ("s3://bucket/a\tb%20c\n.png", "bucket", "a\tb%20c\n.png"),
        ("s3://[bucket/p.png", "[bucket", "p.png"),
        ("s3://bucket/models/", "bucket", "models/"),
        ("s3://bucket//p.png", "bucket", "p.png"),
        ("s3://bucket", "bucket", ""),
    ],
)
def test_a_uri_keeps_every_character_of_its_key(uri: str, bucket: str, key: str) -> None:
    assert split_uri(uri) == (bucket, key)


@pytest.mark.parametrize("uri", ["", "bucket/key", "s3:///key", "s3://", "https://bucket/key"])
def test_a_uri_of_another_kind_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="is not an s3:// URI"):
        split_uri(uri)
