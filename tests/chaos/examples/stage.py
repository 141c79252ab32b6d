"""Examples on the cluster that need no model of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.chaos.examples.test_agents import ON_CPU, documents
from tests.cluster.lab import Lab


def on_cpu(**training: Any) -> dict[str, Any]:
    """What makes an example one of this machine; ``training`` replaces that section."""
    (job,) = documents("calculator-agent.yaml")
    found = {name: job["spec"][name] for name in ON_CPU}
    return found | ({"training": training} if training else {})


@dataclass
class Stage:
    """Applies objects, and deletes all that it applied."""

    lab: Lab
    applied: list[dict[str, Any]] = field(default_factory=list)

    def apply(self, found: list[dict[str, Any]], **changes: Any) -> str:
        """Apply objects; ``changes`` are sections of the job. Returns the last one's name."""
        for one in found:
            if one["kind"] == "RLJob":
                one["spec"] |= changes
            self.applied.append(one)
            self.lab.apply(one)
        return str(found[-1]["metadata"]["name"])

    def clear(self) -> None:
        """Delete it all, the last first."""
        for one in reversed(self.applied):
            self.lab.delete(one["kind"].lower(), one["metadata"]["name"])
