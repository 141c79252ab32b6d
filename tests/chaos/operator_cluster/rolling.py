"""What a pool's pods were from moment to moment, by a watch that leaves no moment out."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from tests.cluster.lab import Lab
from tests.waiting import HUNG_SECONDS


@dataclass(frozen=True)
class Moment:
    """Pods between two events, by uid; terminating ones are counted separately."""

    ready: frozenset[str]
    present: frozenset[str]
    """Ready or not."""
    ending: frozenset[str]


@dataclass
class Rolling:
    """A watch under way, and after it its moments."""

    file: IO[str]
    moments: list[Moment] = field(default_factory=list)

    def read(self, before: set[str]) -> None:
        """Replay the watch from the moment at which it has listed the pods of the beginning."""
        self.file.seek(0)
        ready, present, ending = set[str](), set[str](), set[str]()
        for event in _documents(self.file.read()):
            uid = event["object"]["metadata"]["uid"]
            for uids in (ready, present, ending):
                uids.discard(uid)
            if event["type"] == "DELETED":
                pass
            elif "deletionTimestamp" in event["object"]["metadata"]:
                ending.add(uid)
            else:
                present.add(uid)
                if _is_ready(event["object"]):
                    ready.add(uid)
            before -= {uid}
            if not before:
                self.moments.append(Moment(frozenset(ready), frozenset(present), frozenset(ending)))


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """JSON values one behind the other; one that the watch's end has cut is left out."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield document
        at += len(text[at:]) - len(text[at:].lstrip())


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(
        (condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions
    )


@contextlib.contextmanager
def watching(lab: Lab, *, labels: str, pods: set[str]) -> Iterator[Rolling]:
    """Watch the pods with some labels; the moments can be read once the context has ended.

    Args:
        lab: the namespace.
        labels: a selector.
        pods: uids of those that are there now.
    """
    command = lab.tools.kubectl_command(
        "--namespace",
        lab.namespace,
        "get",
        "pods",
        "-l",
        labels,
        "-o",
        "json",
        "--watch",
        "--output-watch-events",
    )
    with tempfile.TemporaryFile("w+") as file:
        rolling = Rolling(file)
        process = subprocess.Popen(command, stdout=file)
        try:
            yield rolling
        finally:
            process.terminate()
            process.wait(HUNG_SECONDS)
        rolling.read(set(pods))
