"""The example's reader knows nothing of ours and reads every version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rl_contracts.spec.storage import Delta
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_policy_codec.files import mapped
from tests.contract.policy_broadcast.world import Line, moved, raw, strange
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS

READER = ROOT / "examples" / "policy_reader" / "read_policy.py"


def test_published_policies_are_readable_without_this_product(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    line = Line(stores.objects, delta=Delta(anchor_every=3, max_fraction=0.5))
    tensors = strange()
    for seed in range(6):
        line.publish(tensors)
        tensors = moved(tensors, seed=seed)
    environment = {
        "PATH": os.environ["PATH"],
        "S3_ENDPOINT": store_settings.s3_endpoint.removeprefix("http://"),
        "S3_ACCESS_KEY": store_settings.s3_access_key.get_secret_value(),
        "S3_SECRET_KEY": store_settings.s3_secret_key.get_secret_value(),
        "S3_INSECURE": "1",
    }
    for version in (1, 3, 5, 6):
        folder = tmp_path / str(version)
        folder.mkdir()
        prefix = line.pointers[version].prefix
        command = [sys.executable, str(READER), store_settings.s3_bucket, prefix, str(folder)]
        subprocess.run(command, env=environment, check=True, timeout=HUNG_SECONDS)
        assert raw(mapped(folder.glob("*.safetensors"))) == line.states[version]
