"""Refused arguments of the engine, however argparse would let them be written."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import pytest

from rl_operator.validation.engine_arguments import (
    BREAKING,
    OF_THE_OPERATOR,
    QUANTIZING,
    refusals,
)

OPTIONS = (Path(__file__).parent / "sglang_options.txt").read_text().split()
"""Of the installed SGLang; ``tests/chaos/rl_sampler`` compares them with its parser."""
REFUSED = {*OF_THE_OPERATOR, *QUANTIZING, *itertools.chain(*BREAKING.values())}


def reasons(*arguments: str, corrected: bool = False) -> list[str]:
    return [each.reason for each in refusals("args", arguments, corrected=corrected)]


def a_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    for option in OPTIONS:
        parser.add_argument(option, dest=option, nargs="?", const="set")
    return parser


def test_every_beginning_that_argparse_takes_for_a_refused_option_is_refused() -> None:
    for option in REFUSED & set(OPTIONS):
        for length in range(3, len(option) + 1):
            for written in (option[:length], f"{option[:length]}=x"):
                assert reasons(written), written


def test_no_other_option_is_refused() -> None:
    assert [each for each in OPTIONS if reasons(each)] == [
        each for each in OPTIONS if each in REFUSED or each in ("-h", "--kv-cache-dtype")
    ]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["--hos=0.0.0.0"], "--host"),
        (["--model", "x"], "--model"),
        (["--load-f", "dummy"], "--load-format"),
        (["--trust", "x"], ""),
        (["--trust-rem"], "--trust-remote-code"),
        (["--api-k=x"], "--api-key"),
        (["--conf", "file"], "--config"),
    ],
)
def test_the_recorded_options_are_read_as_argparse_reads_them(
    arguments: list[str], meant: str
) -> None:
    if meant:
        read = vars(a_parser().parse_args(arguments))
        assert [option for option, value in read.items() if value is not None] == [meant]
    assert reasons(*arguments) == ["ArgumentReserved"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kv-cache-dtype", "fp8_e5m2"],
        ["--kv-cache-d=fp8_e4m3"],
        ["--kv-cache-dtype", "auto", "--kv-cache-dtype=fp8_e5m2"],
    ],
)
def test_a_quantized_cache_needs_a_correction(arguments: list[str]) -> None:
    assert reasons(*arguments) == ["EngineQuantized"]
    assert reasons(*arguments, corrected=True) == []
    assert reasons("--kv-cache-dtype", "bfloat16", "--mem-fraction-static=0.8") == []


def test_values_are_no_names() -> None:
    assert reasons("--device", "cpu", "--log-level-http", "host", "--tp-size=2") == []
