"""Jobs in a queue while a store, or Kueue's webhook, does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.contract.rl_operator.jobs.test_queue import QUEUED, decide, workload
from tests.contract.rl_operator.world import World
from tests.kube import kueue
from tests.network.relay import Relay, relayed
from tests.waiting import until


@pytest.fixture
def way(queue: World) -> Iterator[Relay]:
    """The way from the readers to MongoDB."""
    uri = queue.settings.mongo_uri.get_secret_value()
    port = urlsplit(uri).port
    assert port is not None
    with relayed(port) as relay:
        queue.make_secret(mongoUri=uri.replace(f":{port}", f":{relay.port}"))
        yield relay


def test_a_job_keeps_its_place_in_the_queue_while_a_store_is_away(queue: World, way: Relay) -> None:
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    decide(queue, kueue.pending(workload(queue), "insufficient quota"))
    queue.settle(job)
    first = workload(queue)["metadata"]["uid"]

    way.cut()
    queue.start_operator()
    assert queue.settle(job)["phase"] == "Stalled"
    assert queue.condition(job, "Stalled")["reason"] == "StateStoreUnreachable"
    assert workload(queue)["metadata"]["uid"] == first

    way.mend()
    until(lambda: queue.reconcile(job)["phase"] == "Queued", what="the store to be checked again")
    assert workload(queue)["metadata"]["uid"] == first
