"""Words of others are shown without their secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.errors import Refusal
from rl_operator.kube.api_errors import MESSAGE_CHARACTERS, translated
from rl_operator.kube.metadata import Child, Meta
from rl_operator.kube.redact import HIDDEN, redacted
from rl_operator.state.deployment_state import DeploymentState
from rl_operator.state.pod import Container, Pod
from rl_operator.state.trainer_job import TrainerJob
from rl_operator.status import scorer_outage
from rl_operator.status.status_input import StatusInput
from rl_operator.validation.refusals import of_samplers
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import a_reading, a_snapshot, a_spec
from tests.unit.rl_operator.kube import texts

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
    "what begins with a number": f"api_tokens=40960{SECRET}",
    "a number": f"tokenizer_password=12345678{SECRET}",
    "a signed address": f"GET https://s3/b/k?X-Amz-Signature={SECRET}&x=1",
    "a Hugging Face token": f"login with hf_{SECRET}{SECRET}",
    "a GitHub token": f"ghp_{SECRET.replace('_', 'a')}{SECRET.replace('_', 'a')}",
    "a JSON web token": f"eyJhbGciOiJIUzI1NiJ9.eyJ{SECRET}.{SECRET}",
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
}


NAMED = {
    **LEAKS,
    **{
        name: text.replace("<secret>", SECRET.replace("_", "0"))
        for name, text in (texts.NOTATIONS | texts.TOKENS).items()
    },
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_secrets_are_hidden(text: str) -> None:
    shown = redacted(text)
    assert SECRET[:12] not in shown
    assert HIDDEN in shown
    assert redacted(shown) == shown


LETTERS = "abcdefXYZ0123456789"
AROUND = st.sampled_from(("", *texts.HARMLESS))


def secrets(alphabet: str) -> st.SearchStrategy[str]:
    rest = st.text(alphabet, min_size=15, max_size=40)
    return st.builds(str.__add__, st.sampled_from("abcXYZ"), rest)


def is_hidden(text: str, secret: str, around: str) -> bool:
    """Whether a secret is hidden, the text before it is kept, and nothing changes any more."""
    shown = redacted(f"{around}\n{text.replace('<secret>', secret)}\n{around}")
    return secret not in shown and redacted(shown) == shown and shown.startswith(around)


@given(st.sampled_from(sorted(texts.NOTATIONS.values())), secrets(LETTERS + "_-/+.~$!"), AROUND)
def test_no_secret_survives_in_any_notation(text: str, secret: str, around: str) -> None:
    assert is_hidden(text, secret, around)


@given(st.sampled_from(sorted(texts.TOKENS.values())), secrets(LETTERS), AROUND)
def test_no_token_of_a_known_form_survives(text: str, secret: str, around: str) -> None:
    assert is_hidden(text, secret, around)


HARMLESS = (
    *texts.HARMLESS,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "Exit code 137 by SIGKILL.",
    "ValueError: shape '[2, 3]' is invalid for input of size 7",
    "step 3: tokens: 512, 99 tokens/s, loss 0.1",
    "http://minio.rl-system.svc:9000/rl-data does not answer",
    "maxTokensPerTurn=512 is larger than the context",
    "spec.agent.sampling.maxContextTokens = 40960: more than the model has",
    "spec.agent.sampling.maxTokensPerTurn = '40960': more than the model has",
    "spec.model.tokenizerUri = 's3://rl-data/tokenizer': there is no such file",
    "spec.storage.secretName = 'team-stores': there is no such Secret",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_kept(text: str) -> None:
    assert redacted(text) == text


@given(st.text(max_size=200))
def test_redaction_is_idempotent(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


ENDLESS = (
    "token",
    "token_",
    "tokensper",
    "tokens ",
    "password.",
    "a",
    "a.",
    "a://",
    "://a:b",
    "eyJ-",
    "-----BEGIN ",
    "?X-Amz-",
    "bearer ",
    "hf_",
    "token_a",
    "token_a-",
    "password\t",
    "machine a login a ",
    "using token ",
    "wandb login --a ",
    "authorization: a ",
    "api key provided ",
)
LAST_WORDS = 4096
"""Characters that the kubelet keeps of them."""


@pytest.mark.parametrize("word", ENDLESS)
def test_redaction_takes_linear_time(word: str) -> None:
    began = time.thread_time()
    redacted(word * (LAST_WORDS // len(word)))
    assert time.thread_time() - began < 1.0


def an_answer(status: int, message: str, *causes: dict[str, str]) -> urllib3.HTTPResponse:
    body = json.dumps({"message": message, "details": {"causes": list(causes)}}).encode()
    return urllib3.HTTPResponse(body, status=status, preload_content=True)


def a_container() -> str:
    ended = {"exitCode": 1, "message": WORDS}
    return Container.parse({"name": "pytorch", "state": {"terminated": ended}}).message


def a_pod_that_fits_no_node() -> str:
    condition = {"type": "PodScheduled", "status": "False", "message": WORDS}
    raw = {"metadata": META, "status": {"conditions": [condition]}}
    return Pod.parse(raw).trouble()


def a_deployment_that_may_have_no_pods() -> str:
    condition = {"type": "ReplicaFailure", "status": "True", "message": WORDS}
    return DeploymentState.parse(
        {"metadata": META, "spec": {}, "status": {"conditions": [condition]}}
    ).uncreated


def a_trainer_s_job() -> str:
    condition = {"type": "Failed", "status": "True", "message": WORDS}
    raw = {"metadata": META, "status": {"conditions": [condition]}}
    return TrainerJob.parse(Child(kind="PyTorchJob", meta=Meta.parse(raw), raw=raw)).message


def a_refused_child() -> str:
    error = translated(an_answer(403, WORDS), "POST /apis/apps/v1/namespaces/n/deployments/d")
    return f"{error} {error.message}"


def a_refused_field() -> str:
    error = translated(an_answer(422, "no", {"field": "spec.a", "message": WORDS}), "POST /x")
    return str(error.causes)


def a_webhook_that_does_not_answer() -> str:
    return str(translated(an_answer(500, f"failed calling webhook: {WORDS}"), "POST /x"))


def a_sampler_s_refusal() -> str:
    refusal = Refusal(field="spec.agent", value="x", reason="R", message=WORDS, remedy="Mend it.")
    sampler = a_sampler(refusals=[refusal])
    return str(next(of_samplers(a_spec(), [sampler])))


def a_scorer_that_is_away() -> str:
    sampler = a_sampler(unavailable={"Judge": WORDS})
    return scorer_outage.describe_outage(
        StatusInput(snapshot=a_snapshot(), reading=a_reading(samplers=(sampler,)), now=0.0)
    )


META = {
    "namespace": "n",
    "name": "x",
    "uid": "u",
    "resourceVersion": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
WORDS = f"denied by https://u:{SECRET}@policy/"
SPEAKERS = (
    a_container,
    a_pod_that_fits_no_node,
    a_deployment_that_may_have_no_pods,
    a_trainer_s_job,
    a_refused_child,
    a_refused_field,
    a_webhook_that_does_not_answer,
    a_sampler_s_refusal,
    a_scorer_that_is_away,
)


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda function: function.__name__)
def test_external_texts_are_redacted(speaker: Callable[[], str]) -> None:
    shown = speaker()
    assert "denied by" in shown
    assert HIDDEN in shown
    assert SECRET not in shown


def test_secret_at_the_cut_is_redacted_before_cutting() -> None:
    message = "x" * (MESSAGE_CHARACTERS - 20) + f" https://u:{SECRET}@policy/"
    shown = translated(an_answer(403, message), "POST /x").message
    assert len(shown) == MESSAGE_CHARACTERS
    assert SECRET[:4] not in shown
