"""Words of others are shown without their secrets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.pod import Container
from rl_operator.scrub import HIDDEN, scrubbed

SECRET = "s3cr3tV4lue_xyz"
LEAKS = {
    "a URI": f"cannot reach mongodb+srv://user:{SECRET}@db.example.org/?tls=true",
    "a URI after dots": f"cannot reach ...mongodb://user:{SECRET}@db.example.org",
    "an assignment of an assignment": f"--set=token={SECRET}",
    "a header": f"sent Authorization: Bearer {SECRET}",
    "an assignment": f"PASSWORD={SECRET} rejected",
    "a prefixed name": f"AWS_SECRET_ACCESS_KEY = {SECRET}",
    "JSON": f'{{"api_key": "{SECRET}", "user": "ann"}}',
    "Python": f"connect(token='{SECRET}')",
    "an option": f"--hf-token={SECRET}",
    "a signed address": f"GET https://s3/b/k?X-Amz-Signature={SECRET}&x=1",
    "a Hugging Face token": f"login with hf_{SECRET}{SECRET}",
    "a GitHub token": f"ghp_{SECRET.replace('_', 'a')}{SECRET.replace('_', 'a')}",
    "a JSON web token": f"eyJhbGciOiJIUzI1NiJ9.eyJ{SECRET}.{SECRET}",
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS.keys())
def test_secrets_are_hidden(text: str) -> None:
    shown = scrubbed(text)
    assert SECRET not in shown
    assert HIDDEN in shown
    assert scrubbed(shown) == shown


HARMLESS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "Exit code 137 by SIGKILL.",
    "ValueError: shape '[2, 3]' is invalid for input of size 7",
    "step 3: tokens: 512, 99 tokens/s, loss 0.1",
    "http://minio.rl-system.svc:9000/rl-data does not answer",
    "maxTokensPerTurn=512 is larger than the context",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_words_stay(text: str) -> None:
    assert scrubbed(text) == text


@given(st.text(max_size=200))
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    assert scrubbed(scrubbed(text)) == scrubbed(text)


ENDLESS = (
    "token", "token_", "password.", "a", "a.", "a://", "://a:b", "eyJ-", "-----BEGIN ", "?X-Amz-",
    "bearer ", "hf_",
)  # fmt: skip
LAST_WORDS = 4096
"""Characters that the kubelet keeps of them."""


@pytest.mark.parametrize("word", ENDLESS)
def test_no_last_words_keep_the_operator_busy(word: str) -> None:
    began = time.thread_time()
    scrubbed(word * (LAST_WORDS // len(word)))
    assert time.thread_time() - began < 1.0


def test_a_container_s_last_words_are_scrubbed() -> None:
    ended = {"exitCode": 1, "message": f"mongodb://u:{SECRET}@h"}
    parsed = Container.parse({"name": "pytorch", "state": {"terminated": ended}})
    assert SECRET not in parsed.message
