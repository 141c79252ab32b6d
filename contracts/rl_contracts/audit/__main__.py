"""``python -m rl_contracts.audit``: shows what a run trained and checks its documents."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any

from rl_contracts import env
from rl_contracts.audit import batch, bounds, run, settings, text
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.migrations import SCHEMA_VERSION
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from rl_contracts.errors import IntegrityError, RefusedError, RLError
from rl_contracts.retention.sweep import Sweeper
from rl_contracts.stores import upgrade
from rl_contracts.stores.connect import Stores
from rl_contracts.trajectories.export import FORMATS, export

GOOD, BAD, REFUSED, UNREACHABLE = 0, 1, 2, 3
EPILOG = f"""exit codes: {GOOD} no problem, {BAD} a problem or a missing document, {REFUSED} bad
arguments or settings, {UNREACHABLE} a store does not answer"""
WRITERS_ALIVE_SECONDS = 30.0
MOST_REUSABLE_STEPS = 64
"""Upper bound of ``algorithm.offPolicy.maxStaleness``; the audit does not read the manifest."""


def main(
    arguments: list[str], environ: Mapping[str, str], *, stdin: IO[str], stdout: IO[str]
) -> int:
    """Run a command; return the exit code."""
    options = _parser(environ).parse_args(arguments)
    try:
        connected = Stores.connect(
            settings.resolve(options, environ, stdin), patience_seconds=options.patience
        )
        with contextlib.closing(connected) as stores:
            return int(VERBS[options.verb](stores, options, stdout))
    except (LookupError, IntegrityError) as error:
        return _failed(str(error), BAD)
    except RefusedError as error:
        return _failed(str(error), REFUSED)
    except RLError as error:
        return _failed(str(error), UNREACHABLE)
    except BrokenPipeError:  # the reader closed the pipe, e.g. `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD


def _failed(message: str, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code


def _batch(stores: Stores, options: argparse.Namespace, out: IO[str]) -> int:
    result = batch.audit(stores, options.run, step=options.step, epoch=options.epoch)
    if options.json:
        _write_json(result.to_json(), out)
    else:
        _write_lines(text.batch(result, tokens=not options.summary), out)
    return GOOD if result.good else BAD


def _run(stores: Stores, options: argparse.Namespace, out: IO[str]) -> int:
    result = run.audit(stores, options.run, max_trainings=options.max_trainings)
    if options.json:
        _write_json(result.to_json().items(), out)
    else:
        _write_lines(text.run(result), out)
    return GOOD if result.good else BAD


def _rollout(stores: Stores, options: argparse.Namespace, out: IO[str]) -> int:
    rollout = stores.rollouts.get([options.id]).get(options.id)
    if rollout is None:
        raise LookupError(f"rollout {options.id} does not exist")
    task = stores.tasks.get([rollout.task]).get(rollout.task)
    if task is None:
        used = "its task does not exist"
    elif rollout.id in task.rollouts:
        used = f"chosen by its task ({task.state}, {task.queue})"
    else:
        used = f"not chosen by its task ({task.state}, {task.queue})"
    if options.json:
        _write_json([*_rollout_json(rollout), ("used", used)], out)
    else:
        _write_lines(text.rollout(rollout, used=used), out)
    return GOOD


def _rollout_json(rollout: Rollout) -> Iterator[tuple[str, Any]]:
    yield "format", "rl-operator/audit-rollout/1"
    arrays: dict[str, Any] = {
        "tokens": unpack_int32(rollout.tokens),
        "mask": list(rollout.mask),
        "logprobs": unpack_float32(rollout.logprobs),
    }
    yield from rollout.model_dump(exclude=set(arrays)).items()
    yield from arrays.items()


def _unwatched(stores: Stores, options: argparse.Namespace) -> Run:
    """Read the run; with ``--write`` refuse a run whose trainer is alive."""
    run = stores.runs.require(options.run)
    age = stores.mongo.now() - run.heartbeat_at
    if options.write and age < WRITERS_ALIVE_SECONDS:
        raise LookupError(
            f"the run's trainer was alive {age:.0f} s ago; suspend the job before changing its "
            "documents"
        )
    return run


def _retention(stores: Stores, options: argparse.Namespace, out: IO[str]) -> int:
    run = _unwatched(stores, options)
    over = run.outcome is not None and run.outcome.kind == "Succeeded"
    sweeper = Sweeper(
        stores,
        run=run.id,
        bounds=bounds.parse(options.bounds),
        reusable_steps=0 if over else MOST_REUSABLE_STEPS,
    )
    plan = sweeper.sweep(epoch=run.epoch) if options.write else sweeper.plan()
    if options.json:
        _write_json(asdict(plan).items(), out)
        return GOOD
    kinds = {"batches": plan.batches, "tasks": plan.tasks, "rollouts": plan.rollouts}
    verb = "deleted" if options.write else "would be deleted"
    rows = [
        [name, len(ids), plan.held.get(name, 0), ids[0] if ids else "", ids[-1] if ids else ""]
        for name, ids in kinds.items()
    ]
    header = ["collection", verb, "beyond bounds but needed", "oldest", "newest"]
    _write_lines(text.table(header, rows), out)
    return GOOD


def _migrate(stores: Stores, options: argparse.Namespace, out: IO[str]) -> int:
    _unwatched(stores, options)
    done = upgrade.upgrade(stores.mongo, options.run, write=options.write)
    if options.json:
        counts = {
            name: {str(version): count for version, count in sorted(counts_by_version.items())}
            for name, counts_by_version in done.versions.items()
        }
        _write_json([("versions", counts), ("older", done.older), ("written", done.written)], out)
        return GOOD
    rows = [
        [name, version, count]
        for name, by_version in done.versions.items()
        for version, count in sorted(by_version.items())
    ]
    _write_lines(text.table(["collection", "version", "documents"], rows), out)
    verb = (
        f"{done.written} rewritten"
        if options.write
        else "none was rewritten; use --write to rewrite them"
    )
    _write_lines([f"{done.older} are older than version {SCHEMA_VERSION}; {verb}"], out)
    return GOOD


def _export(stores: Stores, options: argparse.Namespace, out: IO[str]) -> int:
    for episode in export(
        stores, options.run, kind=options.format, steps=options.steps, tokens=options.tokens
    ):
        out.write(json.dumps(episode, ensure_ascii=False) + "\n")
    return GOOD


def _steps(text: str) -> tuple[int, int]:
    """``A`` or ``A:B``."""
    first, _, last = text.partition(":")
    return int(first), int(last or first)


VERBS = {
    "batch": _batch,
    "run": _run,
    "rollout": _rollout,
    "export": _export,
    "migrate": _migrate,
    "retention": _retention,
}


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rl_contracts.audit", description=__doc__, epilog=EPILOG
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    command = verbs.add_parser(
        "batch", help="show the tokens that a step trained, and verify their digest"
    )
    _add_run(command, environ)
    command.add_argument("--step", type=int, required=True)
    command.add_argument(
        "--epoch",
        type=int,
        help="trainer epoch of the batch; default: the batch on the run's lineage",
    )
    command.add_argument("--summary", action="store_true", help="do not print the tokens")
    command = verbs.add_parser("run", help="check lineage, counts and orphaned documents of a run")
    _add_run(command, environ)
    command.add_argument(
        "--max-trainings",
        type=int,
        default=1,
        metavar="N",
        help="algorithm.offPolicy.maxTrainings, default 1",
    )
    command = verbs.add_parser("rollout", help="show a rollout token by token")
    command.add_argument("--id", required=True)
    command = verbs.add_parser("export", help="write episodes as JSON lines for other tools")
    _add_run(command, environ)
    command.add_argument(
        "--format",
        choices=FORMATS,
        default="jsonl",
        help="atif: Harbor's trajectories; verifiers: its traces; jsonl: our documents (default)",
    )
    command.add_argument(
        "--steps",
        type=_steps,
        metavar="A[:B]",
        help="only what these steps trained, e.g. 10 or 1:20; default: every rollout",
    )
    command.add_argument(
        "--no-tokens",
        dest="tokens",
        action="store_false",
        help="atif: leave out token ids and log-probabilities",
    )
    command = verbs.add_parser(
        "migrate", help="rewrite a suspended run's documents in the current schema version"
    )
    _add_run(command, environ)
    mode = command.add_mutually_exclusive_group(required=True)
    mode.add_argument("--dry-run", action="store_true", help="only count and parse")
    mode.add_argument("--write", action="store_true")
    command = verbs.add_parser(
        "retention", help="delete documents of a suspended or ended run beyond given bounds"
    )
    _add_run(command, environ)
    example = '{"batches": {"maxCount": 10}}'
    command.add_argument(
        "--bounds", required=True, metavar="JSON", help=f"spec.lifecycle.retention, e.g. {example}"
    )
    mode = command.add_mutually_exclusive_group(required=True)
    mode.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    mode.add_argument("--write", action="store_true")
    for command in verbs.choices.values():
        command.add_argument(
            "--json", action="store_true", help="print a JSON object instead of text"
        )
        command.add_argument(
            "--patience",
            type=float,
            default=20.0,
            metavar="SECONDS",
            help="how long to wait for a store that does not answer",
        )
        settings.add_options(command)
    return parser


def _add_run(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    known = environ.get(env.RUN)
    parser.add_argument("--run", default=known, required=not known, help="id of the run")


def _write_lines(lines: Iterable[str], out: IO[str]) -> None:
    for line in lines:
        out.write(f"{line}\n")


def _write_json(members: Iterable[tuple[str, Any]], out: IO[str]) -> None:
    """Write a JSON object; an iterator becomes a list with an item on each line."""
    separator = "{"
    for name, value in members:
        out.write(f"{separator}{json.dumps(name)}: ")
        separator = ",\n"
        if isinstance(value, Iterator):
            inner = "[\n"
            for item in value:
                out.write(f"{inner}{json.dumps(item)}")
                inner = ",\n"
            out.write("[]" if inner == "[\n" else "]")
        else:
            out.write(json.dumps(value))
    out.write("}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, stdin=sys.stdin, stdout=sys.stdout))
