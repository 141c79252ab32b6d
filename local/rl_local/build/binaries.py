"""Builds the programs of the local cluster from public Go modules, cached by key."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from rl_local import progress, versions
from rl_local.errors import LocalError
from rl_local.layout import Layout, locked
from rl_local.system import scratch

GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
SMALL = "-s -w"
KUBERNETES_VERSION = "k8s.io/component-base/version"
FERRETDB = "github.com/FerretDB/FerretDB"
TRAINING_OPERATOR = "github.com/kubeflow/training-operator"
KUEUE = "sigs.k8s.io/kueue"
AGENT_SANDBOX = "sigs.k8s.io/agent-sandbox"
KEDA = "github.com/kedacore/keda/v2"
PROMETHEUS = "github.com/prometheus/prometheus"
"""KUEUE and KEDA: the tests use only their schemas."""


@dataclass(frozen=True, slots=True)
class Binary:
    """How one program is built.

    Attributes:
        name: its name, and the prefix of its key.
        module: ``path@version`` of a command that ``go install`` takes; empty for the others.
        folder: the Go module or C source of the checkout that it is built from, else.
        flags: linker flags.
        tags: Go build tags.
        patch: ``(module, version, patch file in folder)``: that dependency is patched first.
        links: more names under which the program is called.
    """

    name: str
    module: str = ""
    folder: str = ""
    flags: str = SMALL
    tags: str = ""
    patch: tuple[str, str, str] | None = None
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InModule(Binary):
    """A program that is built in the folder of its module, with the module's own checksums.

    ``go install`` asks for the list of a module's versions first, which a proxy may refuse.

    Attributes:
        package: folder of the command in ``module``, which is ``path@version`` of the module.
    """

    package: str = ""


_MAJOR, _MINOR = versions.KUBERNETES.removeprefix("v").split(".")[:2]
BINARIES = {
    binary.name: binary
    for binary in (
        Binary(
            name="kubernetes",
            folder="local/go/kubernetes",
            flags=f"{SMALL} -X {KUBERNETES_VERSION}.gitVersion={versions.KUBERNETES}"
            f" -X {KUBERNETES_VERSION}.gitMajor={_MAJOR} -X {KUBERNETES_VERSION}.gitMinor={_MINOR}",
            links=("kubectl",),
        ),
        Binary(name="etcd", folder="local/go/etcd"),
        Binary(name="pause", folder="local/images/pause"),
        Binary(name="coredns", module=f"github.com/coredns/coredns@{versions.COREDNS}"),
        Binary(
            name="training-operator",
            module=f"{TRAINING_OPERATOR}/cmd/training-operator.v1@{versions.TRAINING_OPERATOR}",
        ),
        Binary(
            name="store",
            folder="local/go/store",
            tags="ferretdb_no_postgresql",
            patch=(FERRETDB, versions.FERRETDB, "ferretdb.patch"),
        ),
        Binary(name="minio", module=f"github.com/minio/minio@{versions.MINIO}"),
        Binary(name="kwok", module=f"sigs.k8s.io/kwok/cmd/kwok@{versions.KWOK}"),
        Binary(name="helm", module=f"helm.sh/helm/v3/cmd/helm@{versions.HELM}"),
        Binary(
            name="actionlint",
            module=f"github.com/rhysd/actionlint/cmd/actionlint@{versions.ACTIONLINT}",
        ),
        Binary(name="krew", module=f"sigs.k8s.io/krew/cmd/krew@{versions.KREW}"),
        *(
            Binary(name=name, module=f"{PROMETHEUS}/cmd/{name}@{versions.PROMETHEUS}")
            for name in ("prometheus", "promtool")
        ),
        InModule(
            name="agent-sandbox-controller",
            module=f"{AGENT_SANDBOX}@{versions.AGENT_SANDBOX}",
            package="cmd/agent-sandbox-controller",
        ),
    )
}

ON_DEMAND = (
    "kwok",
    "actionlint",
    "krew",
    "prometheus",
    "promtool",
    "agent-sandbox-controller",
)
"""Programs outside the local cluster, built on demand."""


def digest(parts: list[bytes]) -> str:
    """A short digest of ``parts``; lengths are included, so different lists never collide."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:12]


def folder_digest(folder: Path) -> bytes:
    """Digest of the names and contents of a folder's files, without tests."""
    parts: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.endswith("_test.go"):
            parts += [str(path.relative_to(folder)).encode(), path.read_bytes()]
    return digest(parts).encode()


def key(binary: Binary, *, root: Path, compiler: str) -> str:
    """The key of a program: its declaration, its sources in the checkout, and the compiler."""
    parts = [repr(binary).encode(), compiler.encode(), str(versions.BUILD_RECIPE).encode()]
    if binary.folder:
        parts.append(folder_digest(root / binary.folder))
    return digest(parts)


@functools.cache
def go_version() -> str:
    """The Go release in use, such as ``go1.26.8``.

    Raises:
        LocalError: Go is missing or too old.
    """
    wanted = ".".join(map(str, versions.GO_MINIMUM))
    if shutil.which("go") is None:
        raise LocalError(f"no `go` on PATH; install Go {wanted} or later")
    release = progress.output(["go", "env", "GOVERSION"]).strip()
    number = re.match(r"go(\d+)\.(\d+)", release)
    if number is None or (int(number[1]), int(number[2])) < versions.GO_MINIMUM:
        raise LocalError(f"found {release}; install Go {wanted} or later")
    return release


def path_of(layout: Layout, name: str) -> Path:
    """Path of the program ``name`` once it is built."""
    binary = BINARIES[name]
    compiler = "gcc-static" if name == "pause" else go_version()
    return layout.cache / "bin" / f"{name}-{key(binary, root=layout.root, compiler=compiler)}"


def ensure(layout: Layout, name: str) -> Path:
    """Build the program if it is missing, link its plain names to it, and return its path."""
    target = path_of(layout, name)
    if not target.exists():
        with locked(layout, f"build-{name}"):
            if not target.exists():
                _build_into(layout, BINARIES[name], target)
    for plain in (name, *BINARIES[name].links):
        link(layout.tools / plain, target)
    return target


def tool(layout: Layout, name: str) -> Path:
    """The plain path of the program ``name``, which is built if it is missing.

    Raises:
        LocalError: no program has this name.
    """
    for binary in BINARIES.values():
        if name == binary.name or name in binary.links:
            ensure(layout, binary.name)
            return layout.tools / name
    known = sorted({*BINARIES, *(link for binary in BINARIES.values() for link in binary.links)})
    raise LocalError(f"no program {name!r}; known programs: {', '.join(known)}")


def module_folder(module: str, version: str) -> Path:
    """Source folder of a module in Go's module cache; downloaded if missing."""
    answer = progress.output(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        timeout=600,
        environment=GO_ENVIRONMENT,
    )
    return Path(json.loads(answer)["Dir"])


def copy_writable(source: Path, target: Path) -> None:
    """Copy a read-only folder of Go's module cache and make the copy writable."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWUSR | stat.S_IRUSR)


def _build_into(layout: Layout, binary: Binary, target: Path) -> None:
    with scratch.folder(layout, target.name) as work:
        if binary.name == "pause":
            built = _compile_pause(layout, binary, work)
        elif isinstance(binary, InModule):
            built = _build_in_module(layout, binary, work)
        elif binary.module:
            built = _install(layout, binary, work)
        else:
            built = _build_module(layout, binary, work)
        target.parent.mkdir(parents=True, exist_ok=True)
        built.replace(target)
    progress.say(f"build {binary.name}: done, {target.stat().st_size / 1e6:.0f} MB")


def _install(layout: Layout, binary: Binary, work: Path) -> Path:
    argv = ["nice", "go", "install", "-trimpath", "-ldflags", binary.flags, binary.module]
    _go(layout, binary, argv, work=work, folder=work)
    (built,) = (path for path in work.iterdir() if path.is_file())
    return built


def _build_in_module(layout: Layout, binary: InModule, work: Path) -> Path:
    source, built = module_folder(*binary.module.split("@")), work / "built"
    argv = ["nice", "go", "build", "-trimpath", "-ldflags", binary.flags, "-o", str(built)]
    _go(layout, binary, [*argv, f"./{binary.package}"], work=work, folder=source)
    return built


def _build_module(layout: Layout, binary: Binary, work: Path) -> Path:
    source = work / "source"
    shutil.copytree(layout.root / binary.folder, source)
    if binary.patch is not None:
        module, version, patch = binary.patch
        copy_writable(module_folder(module, version), source / "patched")
        progress.output(["patch", "-p1", "-d", source / "patched", "-i", source / patch])
        replacement = f"-replace={module}=./patched"
        progress.output(
            ["go", "-C", source, "mod", "edit", replacement], environment=GO_ENVIRONMENT
        )
    argv = ["nice", "go", "build", "-trimpath", "-ldflags", binary.flags]
    argv += ["-tags", binary.tags, "-o", str(work / "built"), "."]
    _go(layout, binary, argv, work=work, folder=source)
    return work / "built"


def _go(layout: Layout, binary: Binary, argv: list[str], *, work: Path, folder: Path) -> None:
    progress.run(
        argv,
        label=f"build {binary.name}",
        log=layout.logs / f"build-{binary.name}.log",
        environment={**GO_ENVIRONMENT, "GOBIN": str(work)},
        folder=folder,
    )


def _compile_pause(layout: Layout, binary: Binary, work: Path) -> Path:
    source = layout.root / binary.folder / "pause.c"
    built = work / "pause"
    argv: list[str | Path] = [
        "gcc",
        "-Os",
        "-Wall",
        "-Werror",
        "-static",
        "-s",
        "-o",
        built,
        source,
    ]
    progress.run(argv, label="build pause", log=layout.logs / "build-pause.log", timeout=120)
    return built


def link(name: Path, target: Path) -> None:
    """Point a plain name at a binary, atomically."""
    wanted = Path("..") / target.name
    if name.is_symlink() and name.readlink() == wanted:
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    half = name.with_name(f".{name.name}.{os.getpid()}")
    half.symlink_to(wanted)
    half.replace(name)
