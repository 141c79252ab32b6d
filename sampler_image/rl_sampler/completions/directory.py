"""All lists of endpoints of a manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from rl_contracts.spec.agent.endpoints import Completions, token_folder
from rl_sampler.completions.endpoint import Server
from rl_sampler.completions.failover import Failover
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.tally import Tally

TOKEN_FILE = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Makes them, and closes what it made."""

    session: aiohttp.ClientSession
    secrets: Path
    """Holds the tokens."""
    tally: Tally
    outages: Outages
    _made: list[Failover] = field(default_factory=list)

    def failover(
        self, name: str, options: Completions, *, seconds: float, place: tuple[object, ...]
    ) -> Failover:
        """One list.

        Args:
            name: whose, e.g. a scorer's kind.
            options: of the manifest.
            seconds: longest wait for one reply.
            place: names its tokens' folders, as ``token_folder`` takes it.
        """
        servers = [
            Server(
                endpoint=one,
                options=options,
                seconds=seconds,
                token_file=self.secrets / token_folder(*place, index) / TOKEN_FILE,
                session=self.session,
            )
            for index, one in enumerate(options.endpoints)
        ]
        made = Failover(name, servers, tally=self.tally, outages=self.outages)
        self._made.append(made)
        return made

    async def close(self) -> None:
        """End what goes on in the background."""
        for one in self._made:
            await one.close()
