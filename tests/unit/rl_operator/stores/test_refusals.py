"""Which refusals of inputs pass by themselves."""

from __future__ import annotations

import pytest

from rl_operator.stores.refusals import is_outage


@pytest.mark.parametrize(
    ("reason", "outage"),
    [
        ("StateStoreUnreachable", True),
        ("ModelUnreachable", True),
        ("ReaderNotRunning", True),
        ("ReaderNotAnswering", True),
        ("DatasetMalformed", False),
        ("BucketAccessDenied", False),
    ],
)
def test_an_outage_is_told_from_what_the_user_must_fix(reason: str, outage: bool) -> None:
    assert is_outage(reason) is outage
