"""What pip is configured to do on this machine, handed to image builds and left in no layer."""

from __future__ import annotations

import configparser
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
CACHE_IN_BUILD = "/var/cache/pip"
CONFIG_IN_BUILD = "/etc/pip.conf"


def config_files(environment: Mapping[str, str], home: Path) -> list[Path]:
    """The configuration files that pip would read here, the weakest first."""
    named = environment.get("PIP_CONFIG_FILE")
    places = [Path("/etc/pip.conf"), home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    return [path for path in [*places, *([Path(named)] if named else [])] if path.is_file()]


def merged(files: Sequence[str], environment: Mapping[str, str]) -> str:
    """One pip.conf that says what ``files`` and the ``PIP_*`` variables say; these win.

    Args:
        files: texts of configuration files, the weakest first.
        environment: variables; only ``PIP_*`` are looked at.
    """
    parser = configparser.RawConfigParser()
    for text in files:
        parser.read_string(text)
    if not parser.has_section("global"):
        parser.add_section("global")
    for name, value in sorted(environment.items()):
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value:
            parser.set("global", name.removeprefix("PIP_").lower().replace("_", "-"), value)
    parser.set("global", "cache-dir", CACHE_IN_BUILD)
    return _text(parser)


def relocate(config: str) -> tuple[str, dict[str, Path]]:
    """Give every path of this machine that a pip.conf names a neutral name inside a build.

    Mounting a path leaves an empty file or folder of its name in the layer, which must not tell
    how this machine is laid out. What does not exist here is dropped.

    Returns:
        The configuration with the names of the build, and name in the build → path here.
    """
    parser = configparser.RawConfigParser()
    parser.read_string(config)
    mounts: dict[str, Path] = {}
    for section in parser.sections():
        for option, value in parser.items(section):
            words = [_relocated(word, mounts) for word in value.split()]
            kept = [word for word in words if word]
            if kept:
                parser.set(section, option, "\n".join(kept))
            else:
                parser.remove_option(section, option)
    return _text(parser), mounts


def _relocated(word: str, mounts: dict[str, Path]) -> str:
    scheme, path = (
        ("file://", word.removeprefix("file://")) if word.startswith("file://") else ("", word)
    )
    if not path.startswith("/") or path == CACHE_IN_BUILD:
        return word
    here = Path(path)
    if not here.exists() or (here.is_dir() and not any(here.iterdir())):
        return ""
    if here == CERTIFICATES:
        return word
    known = {path: name for name, path in mounts.items()}
    name = known.get(here, f"/mnt/pip-{len(mounts)}")
    mounts[name] = here
    return scheme + name


def _text(parser: configparser.RawConfigParser) -> str:
    written = io.StringIO()
    parser.write(written)
    return written.getvalue()


def volumes(config_file: Path, cache: Path) -> list[str]:
    """Write the merged configuration to ``config_file``; return what builds have to mount.

    Returns:
        ``--volume`` values: configuration, certificates and named paths read-only, and pip's cache.
    """
    texts = [path.read_text() for path in config_files(os.environ, Path.home())]
    config, named = relocate(merged(texts, os.environ))
    config_file.touch(mode=0o600)
    config_file.write_text(config)
    cache.mkdir(parents=True, exist_ok=True)
    bundle = Path(os.environ.get("SSL_CERT_FILE") or CERTIFICATES)
    mounts = {str(CERTIFICATES): bundle, CONFIG_IN_BUILD: config_file, **named}
    read_only = [f"{source}:{target}:ro" for target, source in mounts.items() if source.exists()]
    return [*read_only, f"{cache}:{CACHE_IN_BUILD}:rw"]
