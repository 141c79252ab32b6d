"""Off-policy corrections by the name that ``offPolicy.correction.kind`` gives them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.corrections import icepop, importance_cap, mis, opsm, tis
from rl_trainer.algorithm.losses.records import LossInputs

CorrectionFunction = Callable[[LossInputs, Correction, Loss], Tensor]
"""Factor on the loss of each token, float32 ``[N]``, ≥ 0, without gradient."""

CORRECTIONS: dict[str, CorrectionFunction] = {
    "TIS": tis.weights,
    "IcePop": icepop.weights,
    "MIS": mis.weights,
    "OPSM": opsm.weights,
    "ImportanceCap": importance_cap.weights,
}
"""``None`` is no entry: it multiplies by nothing."""
