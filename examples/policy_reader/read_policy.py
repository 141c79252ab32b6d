"""Rebuild any published policy version from the bucket, without rl-operator.

    S3_ENDPOINT=host:9000 S3_ACCESS_KEY=... S3_SECRET_KEY=... \
        python read_policy.py <bucket> <prefix of the version> <folder>

Needs safetensors, numpy, zstandard and minio. The format: docs/reference/policy-format.md.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import zstandard
from minio import Minio
from safetensors.numpy import load

ITEM_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


def tensors(files):
    """A writable view of every tensor's elements, by name."""
    views = {}
    for data in files.values():
        start = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                raw = np.frombuffer(memoryview(data)[start:], np.uint8)[begin:end]
                views[name] = raw.view(f"<u{ITEM_BYTES[entry['dtype']]}")
    return views


def apply(delta, views):
    """Write a delta file's values over the elements that changed."""
    planes = load(zstandard.decompress(delta))
    for name in planes:
        place, _, part = name.rpartition(":")
        if part == "gaps":
            gaps, values = (
                np.ascontiguousarray(planes[f"{place}:{suffix}"].T) for suffix in ("gaps", "values")
            )
            tensor, _, start = place.rpartition("@")
            at = int(start) + np.cumsum(gaps.view(f"<u{gaps.shape[1]}")[:, 0], dtype=np.int64)
            views[tensor][at] = values.view(f"<u{values.shape[1]}")[:, 0]


def read(get, prefix):
    """The safetensors files of a version by name, every tensor checked against its digest."""
    manifest = json.loads(get(prefix + "manifest.json"))
    if manifest["content"] == "full":
        files = {file["name"]: bytearray(get(prefix + file["name"])) for file in manifest["files"]}
    else:
        files = read(get, manifest["delta"]["base"]["prefix"])
        for file in manifest["delta"]["files"]:
            apply(get(prefix + file["name"]), tensors(files))
    views = tensors(files)
    for tensor in manifest["tensors"]:
        assert hashlib.sha256(views[tensor["name"]].data).hexdigest() == tensor["sha256"], tensor[
            "name"
        ]
    return files


if __name__ == "__main__":
    bucket, prefix, folder = sys.argv[1:]
    keys = os.environ["S3_ACCESS_KEY"], os.environ["S3_SECRET_KEY"]
    client = Minio(os.environ["S3_ENDPOINT"], *keys, secure="S3_INSECURE" not in os.environ)
    for name, data in read(lambda key: client.get_object(bucket, key).read(), prefix).items():
        Path(folder, name).write_bytes(data)
