"""Requests that are too long for the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_contracts.documents.datasets.reading import MAX_TEXT_BYTES
from rl_sampler.sandbox.client import Sandbox, SandboxDownError
from rl_sampler.sandbox.wire import MAX_REQUEST_BYTES


def test_a_request_has_room_for_the_longest_record_and_as_long_a_program() -> None:
    assert MAX_REQUEST_BYTES >= 2 * MAX_TEXT_BYTES


async def test_a_request_that_is_too_long_is_not_sent_and_says_so() -> None:
    nowhere = Sandbox(Path("/none"), seconds=1, megabytes=64, start_seconds=0)
    with pytest.raises(SandboxDownError, match=f"the sandbox takes {MAX_REQUEST_BYTES}"):
        await nowhere.run("x", stdin="\n" * (MAX_REQUEST_BYTES // 2))
