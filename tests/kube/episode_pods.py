"""Pods of single episodes as processes behind what a Service is: an address that leads to any pod.

Each has its own folders, and a pod whose server has ended is replaced, as the operator does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.ids import RunId
from rl_contracts.stores.clients.settings import StoreSettings
from rl_sampler.user_code.program_pod import KEY_DIGEST, SERVER_FOLDER, prepare_programs
from tests.processes import children_of
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

CHUNK = 1 << 16
SETTINGS = StoreSettings.model_validate(
    {
        "mongoUri": "mongodb://u:p@h/",
        "mongoDatabase": "rl",
        "s3Endpoint": "http://s3",
        "s3Bucket": "bucket",
        "s3AccessKey": "access",
        "s3SecretKey": "secret",
    }
)
"""Of stores that nobody connects to: the key of a run's programs is derived from them."""


@dataclass(frozen=True)
class EpisodePod:
    """A pod: its folders, its port, and its server's process."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, folder: Path, *, run: RunId, settings: StoreSettings, within: Sequence[str] = ()
    ) -> EpisodePod:
        """Do what the init container does, then start the server.

        ``within``: a command that starts the command behind it, as in namespaces of its own.
        """
        once = folder / "once"
        once.mkdir(parents=True)
        prepare_programs(folder, run=run, settings=settings, once=once)
        return cls.restart(folder, port=free_port(), within=within)

    @classmethod
    def restart(cls, folder: Path, *, port: int, within: Sequence[str] = ()) -> EpisodePod:
        """Start the container, perhaps again, in the same pod."""
        options = {"port": port, "key-digest": folder / KEY_DIGEST, "once": folder / "once"}
        options["root"] = folder / "root"
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with (folder / "pod.log").open("ab") as log:
            process = subprocess.Popen(
                [*within, sys.executable, "-I", "-S", str(folder / SERVER_FOLDER), *arguments],
                env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return cls(folder, port, process)

    @property
    def ready(self) -> bool:
        """Whether its server has begun to listen."""
        return b"ready" in (self.folder / "pod.log").read_bytes()

    def kill(self) -> None:
        """End it with all that it runs, as the end of a container does."""
        running = children_of(self.process.pid) if self.process.poll() is None else []
        self.process.kill()
        self.process.wait(timeout=HUNG_SECONDS)
        for group in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


class EpisodePods:
    """As many pods as wanted, and the address of all."""

    def __init__(self, folder: Path, *, run: RunId, settings: StoreSettings, port: int) -> None:
        self._folder, self._run, self._settings, self._port = folder, run, settings, port
        self._made = 0
        self._stop = threading.Event()
        self.pods: list[EpisodePod] = []
        self.replaced = 0
        """Pods whose server has ended, and that others have replaced."""

    @contextmanager
    def serving(self, count: int) -> Iterator[EpisodePods]:
        """Keep ``count`` pods, until the context ends."""
        self.pods = [self._start() for _ in range(count)]
        until(lambda: all(pod.ready for pod in self.pods), what="the pods")
        threads = [
            threading.Thread(target=self._replace),
            threading.Thread(target=lambda: asyncio.run(self._forward())),
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(timeout=HUNG_SECONDS)
            for pod in self.pods:
                pod.kill()

    def _start(self) -> EpisodePod:
        self._made += 1
        place = self._folder / f"pod-{self._made}"
        return EpisodePod.start(place, run=self._run, settings=self._settings)

    def _replace(self) -> None:
        while not self._stop.wait(timeout=0.05):
            ended = [pod for pod in self.pods if pod.process.poll() is not None]
            added = [self._start() for _ in ended]
            self.pods = [pod for pod in self.pods if pod not in ended] + added
            self.replaced += len(ended)

    async def _forward(self) -> None:
        """Lead each connection to a pod, used or not, and close it where none listens there."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", self._port, backlog=4096)
        await asyncio.to_thread(self._stop.wait)
        server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._lead(reader, writer)
        except OSError:  # nothing listens there
            writer.transport.abort()
        finally:  # also where the pods are stopped meanwhile
            writer.close()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pods = [pod for pod in self.pods if pod.ready]
        ours, theirs = await asyncio.open_connection(
            "127.0.0.1", random.choice(pods).port if pods else 1
        )
        copies = {
            asyncio.create_task(_copy(reader, theirs)),
            asyncio.create_task(_copy(ours, writer)),
        }
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            theirs.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
