from __future__ import annotations

import pytest

from rl_contracts.images import web
from rl_contracts.images.decoder import BadImageError


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "fd00::1"])
def test_addresses_within_the_cluster_are_not_asked(address: str) -> None:
    assert not web.is_outside(address)


def test_a_name_that_leads_into_the_cluster_is_refused_before_it_is_asked() -> None:
    with pytest.raises(BadImageError, match="within the cluster: put the image into the bucket"):
        web.fetch("https://localhost:1/a.png", most=1000)


def test_a_host_outside_is_asked() -> None:
    assert web.is_outside("93.184.216.34")
