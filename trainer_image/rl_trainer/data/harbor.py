"""Reads folders of Harbor tasks, from a bucket or from this pod, and stores their tests."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from rl_contracts.documents.datasets.harbor import (
    CONFIG,
    INSTRUCTION,
    instruction_of,
    is_config,
    name_of,
    parse_task,
)
from rl_contracts.documents.datasets.raw import RawRecord
from rl_contracts.documents.datasets.records import BadRecordError
from rl_contracts.documents.harbor import HarborTask
from rl_contracts.errors import ObjectTooLargeError
from rl_contracts.spec.agent.program import Program
from rl_contracts.spec.quantities import amount
from rl_contracts.stores.files.harbor_tests import ARCHIVE_BYTES, HarborTests
from rl_contracts.stores.objects import Objects, split_uri

TESTS = "tests/"
MIB = 1 << 20
FILE_BYTES = 64 << 20
"""Of a file of a task that is read here."""
TESTS_BYTES = 256 << 20
"""Of a task's tests before they are compressed: they are in memory together."""
MOST_FILES = 1_000_000


@dataclass(frozen=True, slots=True)
class HarborIntake:
    """What tasks are compared with, and where their tests go."""

    program: Program
    """The manifest's, in whose pods the tasks are played."""
    tests: HarborTests


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The files of a source by their paths, and how one is read."""

    paths: Sequence[str]
    read: Callable[[str], bytes]

    def read_below(self, folder: str, path: str) -> bytes:
        """Read a file of a folder, whose name ends with a slash or is empty.

        Raises:
            BadRecordError: it is too large.
        """
        try:
            return self.read(f"{folder}{path}")
        except ObjectTooLargeError as error:
            raise BadRecordError(
                f"has {path} of {error.size_bytes} bytes, more than {error.most}"
            ) from error

    def tasks(self) -> Iterator[tuple[str, list[str]]]:
        """The folder of each task, empty for the source itself, with paths below it."""
        folders = {path.removesuffix(CONFIG) for path in self.paths if is_config(path)}
        below: defaultdict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            folder = "" if "" in folders else f"{path.partition('/')[0]}/"
            if folder in folders:
                below[folder].append(path.removeprefix(folder))
        yield from sorted(below.items())


def folder_of(uri: str, objects: Objects) -> TaskFolder:
    """The files under ``s3://…/`` or ``file://…/``; a missing folder has none.

    Raises:
        AccessDeniedError, StoreUnavailableError: as the bucket's.
    """
    if uri.startswith("file://"):
        return on_disk(Path(unquote(uri.removeprefix("file://"))))
    bucket, key = split_uri(uri)
    theirs = objects.of_bucket(bucket)
    listed = theirs.list(key, most=MOST_FILES)
    return TaskFolder(
        [stat.key.removeprefix(key) for stat in listed if not stat.key.endswith("/")],
        lambda path: theirs.get(f"{key}{path}", most=FILE_BYTES),
    )


def on_disk(root: Path) -> TaskFolder:
    """The files below a folder of this pod."""

    def read(path: str) -> bytes:
        size = (root / path).stat().st_size
        if size > FILE_BYTES:
            raise ObjectTooLargeError(f"file://{root / path}", size_bytes=size, most=FILE_BYTES)
        return (root / path).read_bytes()

    files = sorted(path for path in root.rglob("*") if path.is_file())
    return TaskFolder([path.relative_to(root).as_posix() for path in files], read)


def raw_tasks(folder: TaskFolder, *, intake: HarborIntake) -> Iterator[RawRecord]:
    """The tasks of a folder as records; a bad one has a problem that names its field or file."""
    for place, paths in folder.tasks():
        try:
            yield _raw(place, paths, partial(folder.read_below, place), intake)
        except BadRecordError as error:
            problem = str(error)
            of_config = problem.startswith(("field ", "is no TOML"))
            shown = f"{place}{CONFIG}" if of_config else f"{place or './'}"
            yield RawRecord(place=shown, problem=problem)


def _raw(
    place: str, paths: Collection[str], read: Callable[[str], bytes], intake: HarborIntake
) -> RawRecord:
    config = read(CONFIG)
    task = parse_task(config, files=paths)
    check_fits(task, intake.program)
    packed = archive(read_tests(paths, read))
    if len(packed) > ARCHIVE_BYTES:
        raise BadRecordError(
            f"has tests of {len(packed)} compressed bytes, more than {ARCHIVE_BYTES}"
        )
    return RawRecord(
        place=place or "./",
        value={
            "id": name_of(config, place.rstrip("/") or "task"),
            "query": instruction_of(read(INSTRUCTION)),
        },
        harbor=task.model_copy(update={"tests": intake.tests.put(packed)}),
    )


def read_tests(paths: Collection[str], read: Callable[[str], bytes]) -> dict[str, bytes]:
    """The files below a task's ``tests``. Raises BadRecordError where they are too large."""
    files: dict[str, bytes] = {}
    for path in (each for each in paths if each.startswith(TESTS)):
        files[path.removeprefix(TESTS)] = read(path)
        if sum(map(len, files.values())) > TESTS_BYTES:
            raise BadRecordError(f"has tests of more than {TESTS_BYTES} bytes")
    return files


def check_fits(task: HarborTask, program: Program) -> None:
    """Compare a task with the pods that the manifest gives it.

    Raises:
        BadRecordError: its image, resources or network are not theirs.
    """
    if not task.image and program.image is None:
        _refuse(
            "environment.docker_image",
            "is missing, and no cluster builds a Dockerfile: build and push the image, and name it "
            "here or in agent.program.image",
        )
    if task.image and task.image not in (program.image, *program.images):
        _refuse(
            "environment.docker_image",
            f"is {task.image}, of which there are no pods: name it in agent.program.images",
        )
    wanted = {
        "environment.cpus": ("cpu", task.cpus),
        "environment.memory_mb": ("memory", float(task.memory_mb * MIB)),
        "environment.storage_mb": ("ephemeral-storage", float(task.storage_mb * MIB)),
    }
    resources = program.resources
    for field, (name, needed) in wanted.items():
        given = resources.limits.get(name, resources.requests.get(name))
        if needed and (given is None or amount(given) < needed):
            _refuse(
                field,
                f"is more than a pod has: set agent.program.resources.limits.{name}, which is "
                f"{given if given is not None else 'unset'}, to at least that",
            )
    if program.network == "Open" and not task.public_network:
        _refuse(
            "environment.network_mode",
            "allows fewer addresses than agent.program.network Open: set that to Gateway",
        )


def archive(files: Mapping[str, bytes]) -> bytes:
    """The files as a tar archive, compressed; equal files give equal bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o755
            tar.addfile(entry, io.BytesIO(files[path]))
    return packed.getvalue()


def _refuse(field: str, problem: str) -> NoReturn:
    raise BadRecordError(f"field {field!r} {problem}")
