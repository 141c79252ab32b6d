"""Passes this machine's pip configuration to image builds without leaving it in a layer."""

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
    """Configuration files that pip reads on this machine, lowest precedence first."""
    named = environment.get("PIP_CONFIG_FILE")
    places = [Path("/etc/pip.conf"), home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    return [path for path in [*places, *([Path(named)] if named else [])] if path.is_file()]


def merged(files: Sequence[str], environment: Mapping[str, str]) -> str:
    """Merge configuration files and ``PIP_*`` variables, which win, into a pip.conf.

    Args:
        files: texts of configuration files, lowest precedence first.
        environment: variables; only ``PIP_*`` are used.
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
    """Replace the paths that a pip.conf names by neutral paths inside a build.

    Mounting a path leaves an empty file or folder of that name in the layer, which must not reveal
    paths of this machine. Paths that do not exist here are dropped.

    Returns:
        The configuration with the new paths, and path in the build → path on this machine.
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
    """Write the merged configuration to ``config_file``; return the mounts that builds need.

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
