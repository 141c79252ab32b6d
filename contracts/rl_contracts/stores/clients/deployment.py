"""What kind of MongoDB deployment answers, and what a user should know about its durability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Deployment(StrEnum):
    """Kind of deployment, by the fields of ``hello``.

    https://www.mongodb.com/docs/manual/reference/command/hello/: ``setName`` is there only on a
    member of a replica set, ``msg: isdbgrid`` only on a router of a sharded cluster.
    """

    REPLICA_SET = "ReplicaSet"
    ONE_MEMBER = "OneMember"
    """A replica set whose only data-bearing member is the primary."""
    SHARDED = "Sharded"
    STANDALONE = "Standalone"
    EMBEDDED = "Embedded"
    """The chart's own store."""
    IN_MEMORY = "InMemory"
    """The primary's storage engine keeps nothing on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A deployment that is accepted, and what to know about it."""

    reason: str
    """CamelCase word for conditions."""
    message: str


def kind_of(
    hello: Mapping[str, Any], build: Mapping[str, Any], status: Mapping[str, Any]
) -> Deployment:
    """The kind of deployment.

    Args:
        hello: answer to ``hello``; of a replica set, of its primary.
        build: answer to ``buildInfo``, which names the embedded store.
        status: answer to ``serverStatus``, whose ``storageEngine.persistent`` says whether data
            are kept on disk
            (https://www.mongodb.com/docs/manual/reference/command/serverStatus/#storageengine);
            empty where the user may not ask.
    """
    if status.get("storageEngine", {}).get("persistent") is False:
        return Deployment.IN_MEMORY
    if hello.get("msg") == "isdbgrid":
        return Deployment.SHARDED
    if "setName" in hello:
        members = {*hello.get("hosts", ()), *hello.get("passives", ())}
        return Deployment.REPLICA_SET if len(members) > 1 else Deployment.ONE_MEMBER
    return Deployment.EMBEDDED if "ferretdbVersion" in build else Deployment.STANDALONE


def warning(deployment: Deployment) -> Warned | None:
    """What a user should know about a deployment; None: nothing.

    All writes ask for the journal, so a single server forgets no acknowledged write when its
    process or its machine crashes
    (https://www.mongodb.com/docs/manual/reference/write-concern/#acknowledgment-behavior).
    It does with its disk.
    """
    if deployment is Deployment.IN_MEMORY:
        return Warned(
            reason=deployment.value,
            message="The state store keeps its data in memory: a restart of a majority of its "
            "members loses its runs. Use the storage engine wiredTiger.",
        )
    single = {
        Deployment.STANDALONE: "The state store is a standalone MongoDB server",
        Deployment.ONE_MEMBER: "The state store is a replica set of one member",
        Deployment.EMBEDDED: "The state store is the chart's own, which is for trying things out",
    }.get(deployment)
    if single is None:
        return None
    return Warned(
        reason=deployment.value,
        message=f"{single}: if its disk is lost, so are its runs, and each restart of it is an "
        "outage. Use a replica set of three members.",
    )
