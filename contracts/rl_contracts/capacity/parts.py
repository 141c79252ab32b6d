"""Bytes of one training process, by part."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one process by part; ``at_peak`` has those that are there together."""

    weights: float
    """Masters (float32), or the frozen model's; gathered layers included."""
    gradients: float
    moments: float
    update: float = 0.0
    """Moments that offloading brings to the device for an update, those of one parameter at a time:
    what the passes need is gone by then."""
    reference: float = 0.0
    critic: float = 0.0
    """Its weights, gradients and moments."""
    casts: float = 0.0
    """Copies of weights in half the bytes, which autocast makes for a pass."""
    activations: float = 0.0
    logits: float = 0.0
    """With the output layer's gradient."""
    device: float = 0.0
    """CUDA's own."""
    host: float = 0.0
    """In host memory instead, by offloading; no part of ``total``."""
    moved: float = 0.0
    """What lies in host memory while an engine has the GPU, and on the GPU otherwise: all but
    gradients, which are let go."""

    @property
    def fixed(self) -> float:
        """Weights, gradients and moments: what no smaller microbatch saves."""
        return self.weights + self.gradients + self.moments + self.update

    @property
    def passes(self) -> float:
        """What forward and backward pass need beside the rest."""
        return self.casts + self.activations + self.logits

    @property
    def at_peak(self) -> Memory:
        """The parts at the peak of a step: in its passes, or in the update after them."""
        if self.update > self.passes:
            return replace(self, casts=0.0, activations=0.0, logits=0.0)
        return replace(self, update=0.0)

    @property
    def total(self) -> float:
        """At the peak of a step."""
        peak = self.at_peak
        return peak.fixed + peak.reference + peak.critic + peak.device + peak.passes
