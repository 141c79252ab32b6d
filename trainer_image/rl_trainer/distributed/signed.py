"""Values between ranks: pickles that only processes with the same key can have made.

Unpickling runs what the pickle says. The ranks' ports have no password, so a value is unpickled
only after its HMAC (RFC 2104, SHA-256) has shown that its sender knows the key. The key is derived
from the bucket's secret key, which every rank of a trainer has.

Only values are signed. The tensors of gradients and weights are not: a pod that reaches the
ranks' ports could change those, so a trainer of several processes needs the job's NetworkPolicy.
"""

from __future__ import annotations

import hmac
import pickle
from typing import Any

from rl_trainer.errors import TrainingFailedError

DIGEST = "sha256"
DIGEST_BYTES = 32


class Signer:
    """Signs values, and takes those that were signed with the same key.

    Args:
        key: of the attempt; not empty.
    """

    def __init__(self, key: bytes) -> None:
        assert key, "values of other ranks need a key"
        self._key = key

    def sign(self, value: object, *, place: str) -> bytes:
        """A pickle of the value and its signature, which is good in this place only."""
        data = pickle.dumps(value)
        return self._digest(data, place) + data

    def value(self, signed: bytes, *, place: str) -> Any:
        """The value that was signed for this place.

        Raises:
            TrainingFailedError: it was not signed with this key, or for another place.
        """
        digest, data = signed[:DIGEST_BYTES], signed[DIGEST_BYTES:]
        if not hmac.compare_digest(digest, self._digest(data, place)):
            raise TrainingFailedError(
                reason="ForeignMessage",
                message=f"A message between the trainer's processes ({place}) is not signed with "
                "the key of this attempt: either another pod writes to their ports, which the "
                "job's NetworkPolicy should prevent, or the Secret of the stores changed while the "
                "processes started",
            )
        return pickle.loads(data)

    def _digest(self, data: bytes, place: str) -> bytes:
        made = hmac.new(self._key, place.encode() + b"\0", DIGEST)
        made.update(data)
        return made.digest()
