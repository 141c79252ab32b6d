"""What the broadcast benchmarks share: a bucket server of their own, and policies to send."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from tests.servers import running_minio

CHANGED = 0.015


@dataclass(frozen=True, slots=True)
class Bench:
    """A real MinIO's bucket, and a folder beside its data."""

    objects: Objects
    folder: Path


@contextmanager
def running_bucket() -> Iterator[Bench]:
    """Start a MinIO; its data and the folder are removed in the end."""
    with tempfile.TemporaryDirectory() as name, running_minio(Path(name)) as minio:
        settings = StoreSettings.from_mapping(
            {
                "mongoUri": "mongodb://unused",
                "mongoDatabase": "unused",
                "s3Endpoint": minio.endpoint,
                "s3Bucket": "benchmark",
                "s3AccessKey": minio.access_key,
                "s3SecretKey": minio.secret_key,
            }
        )
        objects = Objects(settings)
        objects.make_bucket()
        yield Bench(objects, Path(name))


def policy(size: int) -> dict[str, Tensor]:
    """Random bfloat16 weights of so many bytes, in 24 tensors."""
    generator = torch.Generator().manual_seed(0)
    return {
        f"layer.{number}.weight": (0.02 * torch.randn(size // 48, generator=generator)).bfloat16()
        for number in range(24)
    }


def stepped(tensors: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The next version: 1.5 % of the weights changed."""
    generator = torch.Generator().manual_seed(seed)
    headers = {}
    for name, tensor in tensors.items():
        changed = torch.rand(tensor.shape, generator=generator) < CHANGED
        bits = tensor.view(torch.int16) ^ changed.to(torch.int16)
        headers[name] = bits.view(torch.bfloat16)
    return headers
