"""Downloads a model of a job through a pod in the job's namespace."""

from __future__ import annotations

from pathlib import Path

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.fetching import CONNECTION, fetch, index
from rl_console.actions.models.waiting import note
from rl_console.actions.models.working import Working, job_manifest, working
from rl_console.cluster.portforward import port_forward
from rl_console.errors import RequestRefusedError, UsageError
from rl_console.figures import size
from rl_console.invocation import Invocation
from rl_console.tools import Tools
from rl_contracts.handout import PORT, HandedModel


def download_model(
    invocation: Invocation,
    job: str,
    *,
    version: int | None,
    merged: bool,
    to: Path | None,
    image: str,
    seconds: float,
) -> None:
    """Download a model into a folder, and print the folder's name.

    Args:
        invocation: the cluster.
        job: whose model.
        version: None: the final model, or else the newest version.
        merged: an adapter is merged into its model.
        to: the folder; None: ``JOB-VERSION`` here.
        image: of the sampler; empty: the job's.
        seconds: until everything must be here.

    Raises:
        ConsoleError: there is no such model, a right is missing, or the time is over.
    """
    cluster = invocation.cluster()
    choice = Choice.of(cluster, cluster.default_namespace, job, version)
    folder = to or Path(f"{job}-{choice.label}")
    images = choice.images(sampler=image, engine=None)
    _make(folder)
    arguments = ["hand-out", *(["--merged"] if merged else [])]
    manifest = job_manifest(choice, images, verb="download", arguments=arguments, seconds=seconds)
    with working(cluster, manifest, seconds=seconds) as made:
        _fetch_all(made, invocation.tools, folder)
    print(folder)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error


def _fetch_all(made: Working, tools: Tools, folder: Path) -> None:
    """Fetch all files; a connection that ends is made again until the deadline."""
    reached = False
    while True:
        pod = made.wait(lambda state: state.phase == "Running").name
        try:
            with port_forward(
                tools, namespace=made.namespace, target=f"pod/{pod}", port=PORT
            ) as port:
                url = f"http://127.0.0.1:{port}"
                model = _staged(made, url)
                reached = True
                note(f"{len(model.files)} files, {size(model.size_bytes)}")
                for file in model.files:
                    fetch(url, file, folder, say=note)
                return
        except CONNECTION as error:
            if reached:  # before, its program has only begun
                note(f"the connection to {pod} ended ({type(error).__name__}): again")
        made.waits.pause(
            f"{folder} is not complete",
            remedy="The same command goes on where it ended; --timeout gives it longer",
        )


def _staged(made: Working, url: str) -> HandedModel:
    """The files, once the pod has staged the model."""
    model = index(url)
    if model is None:
        note("the pod stages the model")
    while model is None:
        state = made.wait(lambda state: state.phase != "Pending")
        if state.phase != "Running":
            cause = state.message or state.doing
            raise RequestRefusedError(doing=f"staging the model in pod {state.name}", cause=cause)
        made.waits.pause("the model is not staged")
        model = index(url)
    return model
