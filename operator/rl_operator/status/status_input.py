"""The input of a job's status."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_operator.attempts.start_gate import SamplerShortfall
from rl_operator.kube.conditions import Stall
from rl_operator.kube.settings import Images
from rl_operator.kueue.admission import Hold
from rl_operator.state.decisions import Decision
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.validation.device_memory import DeviceMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInput:
    """Everything that a job's status is computed from."""

    snapshot: JobSnapshot
    reading: Reading = field(default_factory=Reading)
    bucket: str = ""
    """Name of the stores' bucket; empty when it is not known."""
    decision: Decision | None = None
    stall: Stall | None = None
    checking: bool = False
    """A check of the inputs is in progress."""
    shortfalls: tuple[SamplerShortfall, ...] = ()
    """Groups with fewer samplers than a start needs."""
    blocked_reason: str = ""
    """Why an object could not be written for now, though nobody refuses it; empty: all could."""
    memory: DeviceMemory | None = None
    """Whether the training fits its devices, where that was asked for now."""
    images: Images | None = None
    """The installation's images, while the job's pods use them."""
    hold: Hold | None = None
    """Why the job's queue allows it no pods."""
    now: float

    @property
    def unsampled(self) -> bool:
        """Whether the job samples nothing: it has neither samplers nor policies for them."""
        spec = self.snapshot.job.spec
        return spec is not None and spec.algorithm.unsampled
