"""All attacks on the sandbox."""

from __future__ import annotations

from tests.contract.rl_sampler.tools.attacks.exhaustion import EXHAUSTION
from tests.contract.rl_sampler.tools.attacks.files import READS, WRITES
from tests.contract.rl_sampler.tools.attacks.kernel import ARCHITECTURE, KERNEL, NETWORK
from tests.contract.rl_sampler.tools.attacks.processes import NEIGHBOURS, OPTIONS, PROCESSES
from tests.contract.rl_sampler.tools.attacks.protocol import PROTOCOL

ATTACKS = (
    *READS,
    *NEIGHBOURS,
    *WRITES,
    *PROCESSES,
    *OPTIONS,
    *NETWORK,
    *KERNEL,
    *ARCHITECTURE,
    *EXHAUSTION,
    *PROTOCOL,
)
