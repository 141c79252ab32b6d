"""Where a record says that an image is: checked as far as its text alone tells. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from rl_contracts import addresses
from rl_contracts.spec.data import Images

KINDS = ("image", "image_url")
"""Types of image parts: the form of Qwen's and Hugging Face's data, and OpenAI's."""
DATA = re.compile(r"data:image/[a-z+.-]{1,32};base64,")
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{1,61}[A-Za-z0-9]")
"""Also names with capitals and underscores, which buckets made before 2018 may have."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
ALLOWED = "s3://bucket/key, https://, a data URI of base64, or a path beside the file"
MAX_CHARACTERS = 2048
"""Of an address or a path."""


def problem(source: str, images: Images) -> str:
    """What is wrong with the address of an image; empty where nothing is."""
    if source.startswith("data:"):
        return _of_data(source, images)
    if len(source) > MAX_CHARACTERS:
        return f"is an address of {len(source)} characters, more than {MAX_CHARACTERS}"
    if source.startswith("https://"):
        return address_problem(source)
    if source.startswith("s3://"):
        return _of_bucket(source)
    if SCHEME.match(source):
        scheme = source.partition(":")[0][:20]
        return f"has the scheme {scheme}, and images are at {ALLOWED}"
    path = PurePosixPath(source)
    if path.is_absolute() or ".." in path.parts:
        return "is a path that leaves the folder of its file: write one relative to it"
    return ""


def address_problem(url: str) -> str:
    """Why an ``https`` address is not asked; empty where it is."""
    host = addresses.host_of(url)
    if not host:
        return "has no host"
    internal = addresses.is_internal(host) or addresses.is_loopback(host)
    if internal or addresses.is_metadata(host):
        return f"leads to {host[:100]}, a host within the cluster: put the image into the bucket"
    return ""


def _of_bucket(source: str) -> str:
    bucket, _, key = source.removeprefix("s3://").partition("/")
    if not BUCKET.fullmatch(bucket) or not key.strip("/"):
        return "names no object: write s3://bucket/key"
    if {".", ".."} & set(key.split("/")):
        return "has . or .. in its key: write the key as the bucket lists it"
    return ""


def _of_data(source: str, images: Images) -> str:
    head = DATA.match(source)
    if head is None:
        return "is a data URI, but not data:image/…;base64,"
    size = (len(source) - head.end()) * 3 // 4
    if size > images.max_bytes + 2:
        return f"has {size} bytes, more than spec.data.images.maxBytes = {images.max_bytes}"
    return ""
