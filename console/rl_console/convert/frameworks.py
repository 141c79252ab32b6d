"""The frameworks whose options can be converted."""

from __future__ import annotations

from rl_console.convert import agentrl, maxent, trl, verl
from rl_console.convert.conversion import Framework

FRAMEWORKS: dict[str, Framework] = {
    "agentrl": agentrl.FRAMEWORK,
    "verl": verl.FRAMEWORK,
    "agentfly": verl.FRAMEWORK,
    "trl": trl.FRAMEWORK,
    "stateset": trl.FRAMEWORK,
    "maxent": maxent.FRAMEWORK,
}
