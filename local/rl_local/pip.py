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
    written = io.StringIO()
    parser.write(written)
    return written.getvalue()


def named_paths(config: str) -> list[Path]:
    """The files and folders of this machine that a pip.conf names: a build must see them, too."""
    parser = configparser.RawConfigParser()
    parser.read_string(config)
    values = [value for section in parser.sections() for _, value in parser.items(section)]
    words = [word.removeprefix("file://") for value in values for word in value.split()]
    paths = {Path(word) for word in words if word.startswith("/") and word != CACHE_IN_BUILD}
    return sorted(path for path in paths if path.exists())


def volumes(config_file: Path, cache: Path) -> list[str]:
    """Write the merged configuration to ``config_file``; return what builds have to mount.

    Returns:
        ``--volume`` values: configuration, certificates and named paths read-only, and pip's cache.
    """
    texts = [path.read_text() for path in config_files(os.environ, Path.home())]
    config = merged(texts, os.environ)
    config_file.touch(mode=0o600)
    config_file.write_text(config)
    cache.mkdir(parents=True, exist_ok=True)
    bundle = Path(os.environ.get("SSL_CERT_FILE") or CERTIFICATES)
    mounts = {CERTIFICATES: bundle, Path(CONFIG_IN_BUILD): config_file}
    for path in named_paths(config):
        mounts.setdefault(path, path)
    read_only = [f"{source}:{target}:ro" for target, source in mounts.items() if source.exists()]
    return [*read_only, f"{cache}:{CACHE_IN_BUILD}:rw"]
