from __future__ import annotations

import argparse
import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.audit import settings
from rl_contracts.errors import RefusedError
from rl_contracts.stores.clients.settings import StoreSettings
from tests.servers import ROOT

VALUES = {
    "mongoUri": "mongodb://user:hidden@db.rl.svc:27017/?replicaSet=rs0&authSource=admin",
    "mongoDatabase": "rl_lab",
    "s3Endpoint": "http://minio.rl.svc:9000",
    "s3Bucket": "rl-data",
    "s3Prefix": "lab/",
    "s3AccessKey": "hidden-access",
    "s3SecretKey": "hidden-secret",
}


def resolve(
    arguments: list[str], environ: dict[str, str] | None = None, stdin: str = ""
) -> StoreSettings:
    parser = argparse.ArgumentParser()
    settings.add_options(parser)
    return settings.resolve(parser.parse_args(arguments), environ or {}, io.StringIO(stdin))


def mounted(folder: Path, **changes: str) -> Path:
    for key, value in (VALUES | changes).items():
        (folder / key).write_text(value + "\n")
    return folder


def as_secret(values: dict[str, str]) -> str:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return json.dumps({"kind": "Secret", "data": data})


def test_audit_settings_come_from_the_mounted_secret_by_default(tmp_path: Path) -> None:
    resolved = resolve([], {"RL_STORES_FOLDER": str(mounted(tmp_path))})
    assert resolved.mongo_uri.get_secret_value() == VALUES["mongoUri"]
    assert resolved == resolve(["--stores-folder", str(tmp_path)])


def test_forwarded_ports_replace_addresses_only() -> None:
    arguments = ["--secret", "-", "--mongo-address", "127.0.0.1:2701"]
    resolved = resolve(
        [*arguments, "--s3-endpoint", "http://127.0.0.1:9001"], {}, as_secret(VALUES)
    )
    assert resolved.mongo_uri.get_secret_value() == (
        "mongodb://user:hidden@127.0.0.1:2701/?authSource=admin&directConnection=true"
    )
    assert (resolved.s3_endpoint, resolved.s3_bucket) == ("http://127.0.0.1:9001", "rl-data")


def test_environment_variables_override_mounted_keys(tmp_path: Path) -> None:
    environ = {
        "RL_STORES_FOLDER": str(mounted(tmp_path)),
        "RL_STORES_MONGO_URI": "mongodb://other/",
        "RL_STORES_S3_BUCKET": "other-bucket",
    }
    resolved = resolve([], environ)
    assert (resolved.mongo_uri.get_secret_value(), resolved.s3_bucket) == (
        "mongodb://other/",
        "other-bucket",
    )


REFUSALS: list[tuple[list[str], dict[str, str], str, str]] = [
    ([], {"RL_STORES_FOLDER": "/nowhere"}, "", "mongoUri"),
    (["--stores-folder", "/nowhere"], {}, "", "is not a folder"),
    (["--secret", "/nowhere"], {}, "", "No such file"),
    (["--secret", "-"], {}, "no json", "not a Secret in JSON"),
    (["--secret", "-"], {}, '{"data": null}', "not a Secret in JSON"),
    (["--secret", "-"], {}, as_secret(VALUES | {"s3Endpoint": "minio"}), "s3Endpoint"),
    (
        ["--secret", "-", "--mongo-address", "a:1"],
        {"RL_STORES_MONGO_URI": "mongodb+srv://user:hidden@db/"},
        as_secret(VALUES),
        "does not name a single server",
    ),
]


@pytest.mark.parametrize(("arguments", "environ", "stdin", "match"), REFUSALS)
def test_bad_settings_are_refused_and_no_secret_is_shown(
    arguments: list[str], environ: dict[str, str], stdin: str, match: str
) -> None:
    with pytest.raises(RefusedError, match=match) as error:
        resolve(arguments, environ, stdin)
    assert "hidden" not in str(error.value)


def test_no_option_takes_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    settings.add_options(parser)
    parser.print_help()
    shown = capsys.readouterr().out
    fields: Any = StoreSettings.model_fields
    secret = [name for name in fields if "SecretStr" in str(fields[name].annotation)]
    assert len(secret) >= 3
    assert not any(f"--{name.replace('_', '-')} " in shown for name in secret)


def test_it_loads_nothing_heavy() -> None:
    code = """
import sys
import rl_contracts.audit.__main__
sys.exit(str({"torch", "numpy", "transformers"} & set(sys.modules) or ""))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "contracts",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == "", done.stderr
