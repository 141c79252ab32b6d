"""The page of conditions lists every reason that the code gives, and no other."""

from __future__ import annotations

import re

from tests.unit.docs import reasons
from tests.unit.docs.pages import ROOT, quoted, strings

LISTED = quoted(ROOT / "docs" / "reference" / "conditions.md")
OF_OTHER_PROGRAMS = {
    *("BadSettings", "BoundsMalformed"),  # the audit's
    "NotPromoted",  # the pod's that copies a model
    "ModelMalformed",  # in the log of a sampler's pod
}
OF_NO_CONDITION = {
    *("Balanced", "Cooldown", "NoGain"),  # the autoscaler changes nothing
    *("NoEngine", "Silent", "Stale"),  # events have "Sampler" before it
}
IMPOSSIBLE = {
    *("BucketIncomplete", "DatasetIncomplete", "StateStoreIncomplete"),  # only folders lack files
    *("BucketUnreadable", "StateStoreNotFound"),  # its check reads nothing; it creates what it uses
}
"""What the parts of which a reason is made would allow."""
OF_THE_KUBELET = {"OOMKilled", "Evicted", "DisruptionTarget"}
KINDS = {"SamplerPool", "SamplerPools", "RLJob"}


def test_every_reason_of_the_code_is_listed() -> None:
    given = reasons.given()
    assert len(given) > 200
    assert sorted(given - LISTED - OF_OTHER_PROGRAMS - OF_NO_CONDITION - IMPOSSIBLE) == []


def test_what_need_not_be_listed_is_given_and_is_not_listed() -> None:
    left_out = OF_OTHER_PROGRAMS | OF_NO_CONDITION | IMPOSSIBLE
    assert left_out - reasons.given() == set()
    assert left_out & LISTED == set()


def test_no_reason_is_made_up() -> None:
    known = reasons.given() | strings(reasons.SOURCES) | OF_THE_KUBELET | KINDS
    named = {token for token in LISTED if re.fullmatch(r"[A-Z][a-z]+[A-Z]\w+", token)}
    events = {f"Sampler{reason}" for reason in OF_NO_CONDITION}
    assert sorted(named - known - events) == []
