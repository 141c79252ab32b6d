"""Checks of inputs and deletions: begun by a request, and asked for again until they are done."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable

from rl_contracts.errors import Refusal, RLError
from rl_contracts.reader import (
    CheckAnswer,
    CheckRequest,
    DeleteAnswer,
    DeleteRequest,
    RefusalText,
)
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.unexpected import unexpected_answers
from rl_contracts.stores.connect import Stores
from rl_reader.input_checks import Checked, InputChecks
from rl_reader.mounted import Folder, Mounted
from rl_reader.reach import Asked, shown

ANSWER_SECONDS = 3.0
"""How long a request waits for work that it has begun."""
CHECK_SECONDS = 120.0
"""A check that takes longer is refused: a store answers too slowly, or never."""
PIECE_SECONDS = 60.0
"""Longest time without progress of a deletion."""
CHECKS = 2
"""Checks at the same time, each of which may hold the beginning of a dataset."""


class Checks:
    """Checks inputs of jobs. For any thread."""

    def __init__(self, folder: Folder) -> None:
        """Check nothing yet."""
        self._folder, self._inputs = folder, InputChecks(namespace=folder.namespace)
        self._running: dict[str, _Check] = {}
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(CHECKS)

    def answer(self, request: CheckRequest) -> CheckAnswer:
        """Begin a check, or see whether the one that runs has ended."""
        mounted = self._folder.current()
        if mounted.stores is None:
            assert mounted.refusal is not None
            refused = RefusalText.of(mounted.refusal)
            return CheckAnswer(version=mounted.version, done=True, refusals=(refused,))
        name = hashlib.sha256(f"{mounted.version} {request.model_dump_json()}".encode()).hexdigest()
        with self._lock:
            check = self._running.get(name)
            if check is None:
                check = self._running[name] = self._begin(request, mounted)
        ended = False
        try:
            ended = check.asked.wait(ANSWER_SECONDS)
            if not ended and not check.is_late():
                return CheckAnswer(version=mounted.version, done=False)
        finally:
            if check.asked.has_ended or check.is_late():
                with self._lock:
                    self._running.pop(name, None)
        if not ended:
            check.asked.abandon()
            self._folder.reconnect()
            return CheckAnswer(version=mounted.version, done=True, refusals=(TOO_SLOW,))
        refusals = tuple(_hiding(refusal, mounted) for refusal in check.result.refusals)
        return CheckAnswer(
            version=mounted.version,
            done=True,
            refusals=refusals,
            model=check.result.model,
            others=check.result.others,
        )

    def _begin(self, request: CheckRequest, mounted: Mounted) -> _Check:
        spec = RLJobSpec.model_validate(request.spec)
        stores = mounted.stores
        assert stores is not None

        def check() -> Checked:
            with self._slots:
                return self._inputs.check(spec, stores, begun=request.begun)

        return _Check(check)


class _Check:
    def __init__(self, check: Callable[[], Checked]) -> None:
        self.result = Checked()
        self._began = time.monotonic()

        def run() -> None:
            self.result = check()

        self.asked = Asked(run, name="check")

    def is_late(self) -> bool:
        return time.monotonic() - self._began > CHECK_SECONDS


TOO_SLOW = RefusalText(
    field="spec.storage.secretName",
    value="",
    reason="BucketUnreachable",
    message=f"Checking the stores, the model and the data took longer than {CHECK_SECONDS:.0f} s.",
    remedy="Check that the servers that the stores' Secret names answer in time.",
)


class Deletions:
    """Deletes data of runs, a page at a time. For any thread."""

    def __init__(self, folder: Folder) -> None:
        """Delete nothing yet."""
        self._folder = folder
        self._running: dict[str, _Deletion] = {}
        self._lock = threading.Lock()

    def answer(self, request: DeleteRequest) -> DeleteAnswer:
        """Begin a deletion, or see whether the one that runs has ended."""
        mounted = self._folder.last()
        if mounted.stores is None:
            return DeleteAnswer(done=False, problem=str(mounted.refusal))
        with self._lock:
            deletion = self._running.get(request.run)
            if deletion is None or deletion.version != mounted.version:
                if deletion is not None:
                    deletion.asked.abandon()
                deletion = self._running[request.run] = _Deletion(
                    request.run, mounted.stores, mounted.version
                )
        try:
            if deletion.asked.wait(ANSWER_SECONDS):
                return DeleteAnswer(done=True)
        except RLError as error:
            return DeleteAnswer(done=False, problem=shown(str(error), mounted.without_secrets))
        finally:
            if (
                deletion.asked.has_ended
            ):  # also by an error of a client: the next request tries again
                self._forget(request.run)
        if deletion.is_late():
            problem = f"The stores have not answered for {PIECE_SECONDS:.0f} s"
            self._forget(request.run)
            deletion.asked.abandon()
            self._folder.reconnect()
            return DeleteAnswer(done=False, problem=problem)
        return DeleteAnswer(done=False)

    def _forget(self, run: str) -> None:
        with self._lock:
            self._running.pop(run, None)


class _Deletion:
    """A deletion under way."""

    def __init__(self, run: str, stores: Stores, version: str) -> None:
        self._run, self._stores, self.version = run, stores, version
        self._progress_at = time.monotonic()
        self.asked = Asked(self._delete, name="delete")

    def is_late(self) -> bool:
        return time.monotonic() - self._progress_at > PIECE_SECONDS

    def _delete(self) -> None:
        stores, prefix = self._stores, self._stores.run_prefix(self._run)
        with unexpected_answers():
            stores.objects.abort_uploads(prefix, before=math.inf)
            while stores.objects.delete_page(prefix):
                self._note_progress()
            while stores.mongo.delete_page(self._run):
                self._note_progress()
            stores.mongo.delete_run(self._run)

    def _note_progress(self) -> None:
        self._progress_at = time.monotonic()


def _hiding(refusal: Refusal, mounted: Mounted) -> RefusalText:
    text = RefusalText.of(refusal)
    return text.model_copy(update={"message": mounted.without_secrets(text.message)})
