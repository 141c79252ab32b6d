"""A corpus of attacks on the sandbox: each fails, and what surrounds the sandbox is unchanged."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rl_sampler.sandbox.client import Sandbox
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, Outcome
from tests.contract.rl_sampler.tools.attacks.attack import PRELUDE, Attack
from tests.contract.rl_sampler.tools.attacks.corpus import ATTACKS
from tests.contract.rl_sampler.tools.sandboxes import SECRET, WITHOUT_CAPABILITIES, serving

MEGABYTES, SLOTS = 256, 4
WAIT = f"kept = {SECRET!r}; print('ready', flush=True); input()"

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the corpus has numbers of x86_64's system calls"
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Outcome]]:
    """What each attack came to; afterwards the surroundings must be as before."""
    folder = tmp_path_factory.mktemp("sandbox")
    canary, path = folder / "kept" / "canary.py", folder / "socket" / "programs"
    for each in (canary, path):
        each.parent.mkdir()
    canary.write_text(f"SECRET = {SECRET!r}\n")
    prefix = WITHOUT_CAPABILITIES if os.geteuid() == 0 else ()
    victim = subprocess.Popen(
        [*prefix, sys.executable, "-I", "-c", WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"ready\n"
    with serving(path, slots=SLOTS, wall_factor=4) as server:
        names = {
            "CANARY": str(canary),
            "SOCKET": str(path),
            "SERVER": server.pid,
            "VICTIM": victim.pid,
        }
        preset = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        sandbox = Sandbox(path, seconds=1, megabytes=MEGABYTES)

        async def ended(attack: Attack) -> tuple[str, Outcome]:
            code = f"{PRELUDE}{preset}{attack.code}"
            return attack.name, await sandbox.run(code, tests=attack.tests)

        async def all_ended() -> dict[str, Outcome]:
            return dict(await asyncio.gather(*map(ended, ATTACKS)))

        yield asyncio.run(all_ended())
        assert server.poll() is None
        assert asyncio.run(sandbox.run("print('alive')")).output == "alive\n"
    assert victim.poll() is None
    victim.communicate()
    assert [each.name for each in canary.parent.iterdir()] == ["canary.py"]
    assert canary.read_text() == f"SECRET = {SECRET!r}\n"
    assert not Path("/dev/shm/left").exists()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_fails(attack: Attack, outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes[attack.name]
    assert SECRET not in outcome.output + outcome.errors
    assert len(outcome.output) <= MAX_OUTPUT_BYTES
    assert not outcome.passed
    if attack.ending == "refused":
        assert (outcome.ending, outcome.output, outcome.errors) == ("ended", "refused\n", "")
        return
    endings = ("processor", "wall") if attack.ending == "limit" else (attack.ending,)
    assert outcome.ending in endings
    if attack.output is not None:
        assert outcome.output == attack.output


def test_corpus_has_many_attacks_with_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 120
