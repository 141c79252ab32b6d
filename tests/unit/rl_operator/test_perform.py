"""One action of a plan, where the object changes between its read and its write."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rl_operator import kinds
from rl_operator.cluster import ApiConflictError, ApiMissingError, Cluster
from rl_operator.names import SPEC_MANAGER
from rl_operator.perform import perform
from rl_operator.plan import Apply

MANIFEST = {"metadata": {"name": "x", "namespace": "n", "resourceVersion": "7"}, "spec": {}}
CREATED = {"manager": SPEC_MANAGER, "operation": "Update", "fieldsV1": {"f:spec": {"f:a": {}}}}


class Going:
    """A cluster whose object goes as soon as it was read; the API server answers so then."""

    def get(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"managedFields": [CREATED]}}

    def merge(self, *_: Any) -> dict[str, Any]:
        raise ApiMissingError(doing="PATCH x", status=404, message="not found")

    def apply(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("nothing is applied to what has gone")


def test_an_object_that_goes_before_it_is_handed_over_is_a_conflict() -> None:
    with pytest.raises(ApiConflictError) as caught:
        perform(cast(Cluster, Going()), "n", Apply(kind=kinds.DEPLOYMENT, manifest=MANIFEST))
    assert caught.value.doing == "PATCH x"
