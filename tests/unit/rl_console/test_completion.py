from __future__ import annotations

from collections.abc import Sequence

import pytest

from rl_console import completion


@pytest.mark.parametrize(
    ("words", "candidates", "directive"),
    [
        (["sus"], ["suspend"], 4),
        (["list", "-o", "j"], ["json"], 4),
        (["list", "--all"], ["--all-namespaces"], 4),
        (["status", "su"], ["sums"], 4),
        (["-n", "lab", "logs", "sums", "a"], ["agent"], 4),
        (["validate", "-f", ""], [], 0),
        (["diff", "sums", "x"], [], 0),
        (["top", "sums", ""], [], 4),
        (["logs", "-n", "ns", "su"], ["sums"], 4),
        (["logs", "--context", "c", "su"], ["sums"], 4),
        (["logs", "--tail", "5", "su"], ["sums"], 4),
        (["logs", "-f", "su"], ["sums"], 4),
        (["logs", "-f", "sums", "a"], ["agent"], 4),
        (["logs", "--namespace=ns", "su"], ["sums"], 4),
        (["--context", "logs", "sus"], ["suspend"], 4),
        (["logs", "-n", ""], [], 4),
        (["report", "sums", "--out", ""], [], 0),
    ],
)
def test_the_last_word_is_completed(
    words: Sequence[str], candidates: list[str], directive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_jobs", lambda words: ["sums", "other"])
    assert completion.candidates(words) == (candidates, directive)


def test_every_command_is_offered() -> None:
    candidates, _ = completion.candidates([""])
    assert {"list", "status", "demo"} <= set(candidates)


def test_no_option_installs_a_completion_in_place_of_kubectl_s() -> None:
    candidates, _ = completion.candidates(["--"])
    assert "--version" in candidates
    assert [each for each in candidates if "completion" in each] == []


def test_a_cluster_that_does_not_answer_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setattr("sys.argv", ["kubectl_complete-rl", "status", ""])
    completion.main()
    assert capsys.readouterr().out == ":4\n"


@pytest.mark.parametrize(
    "words", [["-n", "ns", "--context", "c", "logs", ""], ["logs", "--context=c", "-n", "ns", ""]]
)
def test_jobs_are_those_of_the_options(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        completion, "_jobs", lambda options: [f"{name}={options[name]}" for name in sorted(options)]
    )
    assert completion.candidates(words)[0] == ["kube_context=c", "namespace=ns"]
