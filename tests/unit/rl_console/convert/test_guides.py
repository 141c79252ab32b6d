"""The guides' own examples: the manifest is valid, and each option is mapped or has a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_console.convert.conversion import Converted, convert
from rl_console.convert.frameworks import FRAMEWORKS
from rl_console.convert.rules import Line

GUIDES = Path(__file__).parent / "guides"
EXAMPLES = {
    "agentfly-math.sh": "agentfly",
    "agentfly-react.sh": "agentfly",
    "agentfly-code.sh": "agentfly",
    "agentrl.sh": "agentrl",
    "stateset-variables.sh": "stateset",
    "stateset-launch.sh": "stateset",
    "stateset-quick.sh": "stateset",
    "stateset-config.txt": "trl",
    "maxent.sh": "maxent",
    "maxent-recipe.yaml": "maxent",
}


def converted(file: str) -> Converted:
    return convert(FRAMEWORKS[EXAMPLES[file]], (GUIDES / file).read_text())


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_of_a_guide_becomes_a_valid_job(file: str) -> None:
    result = converted(file)
    assert result.problems == []
    assert [line.option for line in result.lines if line.state == "unknown"] == []
    assert all(line.note for line in result.lines if line.state != "mapped")
    assert all(line.field for line in result.lines if line.state == "mapped")


def at(manifest: Any, path: str) -> Any:
    for part in path.split("."):
        manifest = manifest[int(part)] if part.isdigit() else manifest[part]
    return manifest


@pytest.mark.parametrize(
    ("file", "values"),
    [
        (
            "agentfly-math.sh",
            {
                "metadata.name": "test-gsm8k",
                "spec.agent.kind": "ToolLoop",
                "spec.agent.builtInTools": ["Calculator"],
                "spec.algorithm.kl": {"placement": "Loss", "coefficient": 0.001, "estimator": "K2"},
                "spec.algorithm.groupSize": 8,
                "spec.training.steps": 100,
            },
        ),
        (
            "agentfly-react.sh",
            {
                "spec.reward.scorers.0.entryPoint": "rewards:qa_f1_reward",
                "spec.agent.builtInTools": ["Answer"],
                "spec.agent.tools": [{"entryPoint": "tools:google_search"}],
            },
        ),
        ("agentfly-code.sh", {"spec.agent.kind": "Code", "spec.reward.scorers.0.kind": "Code"}),
        (
            "agentrl.sh",
            {"spec.training.promptsPerStep": 8, "spec.agent.sampling.maxContextTokens": 10240},
        ),
        (
            "stateset-variables.sh",
            {"spec.training.steps": 63, "spec.training.lora": {"rank": 16, "alpha": 32}},
        ),
        (
            "stateset-quick.sh",
            {"spec.training.steps": 10, "spec.training.promptsPerStep": 4},
        ),
        (
            "maxent.sh",
            {
                "spec.lifecycle.activeDeadlineSeconds": 72 * 3600,
                "spec.trainer.resources.limits": {"nvidia.com/gpu": 6},
            },
        ),
        ("maxent-recipe.yaml", {"spec.algorithm.estimator.kind": "MaxEnt"}),
    ],
)
def test_options_of_a_guide_become_fields(file: str, values: dict[str, Any]) -> None:
    manifest = converted(file).manifest
    assert {path: at(manifest, path) for path in values} == values


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        (
            "--beta1 0.5 --loss_calculater GRPO --beta2 1",
            {"kind": "CEGPPO", "gradientBelow": 0.5, "gradientAbove": 1.0},
        ),
        ("--beta2 0.8", {"kind": "CEGPPO", "gradientAbove": 0.8}),
        ("--loss_calculater GSPO --beta1 0.5", {"kind": "GSPO"}),
    ],
)
def test_gradients_of_clipped_tokens_choose_the_loss_that_keeps_them(
    options: str, loss: dict[str, Any]
) -> None:
    script = (GUIDES / "agentrl.sh").read_text().replace("--loss_calculater GRPO", options)
    result = convert(FRAMEWORKS["agentrl"], script)
    assert result.problems == []
    assert at(result.manifest, "spec.algorithm.loss") == loss


def line_of_tools(names: str) -> tuple[Line, Any]:
    """What becomes of AgentFly's tools: the line about them, and the agent of the manifest."""
    script = (GUIDES / "agentfly-react.sh").read_text().replace("google_search,answer", names)
    result = convert(FRAMEWORKS["agentfly"], script)
    assert result.problems == []
    (line,) = (line for line in result.lines if line.option == "agent.tools")
    return line, result.manifest["spec"]["agent"]


@pytest.mark.parametrize("name", ["google_search", "google_search_serper"])
def test_a_web_search_is_told_of_the_search_over_a_collection(name: str) -> None:
    line, agent = line_of_tools(f"{name},answer")
    assert line.state == "by hand"
    assert "use agent.builtInTools [Search] with agent.search" in line.note
    assert agent["tools"] == [{"entryPoint": f"tools:{name}"}]


def test_a_retriever_becomes_the_search_over_a_collection() -> None:
    line, agent = line_of_tools("asyncdense_retrieve,answer,dense_retrieve")
    assert (line.state, line.field) == ("by hand", "agent.builtInTools")
    assert "start a retrieval service" in line.note
    assert agent["builtInTools"] == ["Answer", "Search"]
    assert agent["search"] == {"url": "http://search:8000/retrieve"}
    assert "tools" not in agent


def test_credentials_of_options_are_not_shown() -> None:
    lines = [str(line) for line in converted("agentrl.sh").lines]
    lines += map(str, convert(FRAMEWORKS["stateset"], "export WANDB_API_KEY=hunter2").lines)
    assert not any("pwd" in line or "hunter2" in line for line in lines)


def test_an_option_that_no_guide_names_is_listed() -> None:
    (line, *_) = convert(FRAMEWORKS["verl"], "python x trainer.frobnicate=3").lines
    assert (line.option, line.value, line.state) == ("trainer.frobnicate", "3", "unknown")


@pytest.mark.parametrize("framework", ["verl", "agentrl", "trl", "maxent"])
def test_a_value_in_a_variable_of_the_script_is_left_to_a_person(framework: str) -> None:
    """The script is not run, so the value is not known; a default is."""
    options = FRAMEWORKS[framework].rules
    flags = [f"--{name}=$SET_ELSEWHERE" for name, rule in options.items() if rule.fields]
    result = convert(FRAMEWORKS[framework], f"python train.py {' '.join(flags)}")
    assert result.problems == []
    assert any(line.state == "by hand" for line in result.lines)
    others = [line for line in result.lines if line.option and line.state != "by hand"]
    # verl's options of the KL depend on whether there is one.
    assert all("kl_" in line.option and line.state == "not needed" for line in others)


def test_a_variable_with_a_default_has_this_value() -> None:
    given = "export LEARNING_RATE=${LEARNING_RATE:-1e-6}\nexport MODEL_NAME=${MODEL_NAME:-a/b}"
    spec = convert(FRAMEWORKS["stateset"], given).manifest["spec"]
    assert spec["training"]["optimizer"]["learningRate"] == 1e-6
    assert spec["model"]["uri"] == "hf://a/b"


def test_a_rate_without_a_point_is_a_number_in_yaml_too() -> None:
    spec = convert(FRAMEWORKS["trl"], "learning_rate: 1e-6\n").manifest["spec"]
    assert spec["training"]["optimizer"]["learningRate"] == 1e-6


GPUS = ("spec.trainer.resources.limits", "spec.samplers.0.template.resources.limits")


@pytest.mark.parametrize("file", EXAMPLES)
def test_trainer_and_samplers_have_gpus(file: str) -> None:
    manifest = converted(file).manifest
    assert all(at(manifest, path)["nvidia.com/gpu"] >= 1 for path in GPUS)


def test_gpus_that_the_options_do_not_say_are_left_to_a_person() -> None:
    lines = [line for line in converted("stateset-config.txt").lines if "resources" in line.field]
    assert [(line.state, line.field) for line in lines] == [
        ("by hand", "trainer.resources"),
        ("by hand", "samplers[0].template.resources"),
    ]
    assert all("1 GPU for each pod" in line.note for line in lines)


@pytest.mark.parametrize("field", ["model.uri", "data.train[0].uri", "trainer.resources"])
def test_a_variable_s_field_has_one_row_that_says_what_to_replace(field: str) -> None:
    flags = "model.path=$MODEL data.train_files=$TRAIN trainer.n_gpus_per_node=$GPUS"
    result = convert(FRAMEWORKS["verl"], f"python -m verl.trainer.main_ppo {flags}")
    (line,) = (line for line in result.lines if line.field == field)
    assert line.note.startswith("the script takes it from a variable: ")
    assert "replace s3://your-bucket/" in line.note or "1 GPU" in line.note


SCRIPT = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

dataset = load_dataset("trl-lib/DeepMath-103K", split="train")
{config}
trainer = GRPOTrainer({model}reward_funcs=score, train_dataset=dataset{args})
trainer.train()
"""


@pytest.mark.parametrize(
    ("model", "config", "uri"),
    [
        ('model="Qwen/Qwen2-0.5B-Instruct", ', "", "hf://Qwen/Qwen2-0.5B-Instruct"),
        ('model="a/b", ', "args = GRPOConfig(max_steps=7)", "hf://a/b"),
        ("model=loaded, ", "args = GRPOConfig(max_steps=7)", "s3://your-bucket/models/model"),
    ],
    ids=["no config", "a config", "an object"],
)
def test_the_model_of_trl_s_trainer_is_read(model: str, config: str, uri: str) -> None:
    args = ", args=args" if config else ""
    script = SCRIPT.format(model=model, config=config, args=args)
    result = convert(FRAMEWORKS["trl"], script)
    assert result.problems == []
    assert [line.option for line in result.lines if line.state == "unknown"] == []
    assert at(result.manifest, "spec.model.uri") == uri
    assert at(result.manifest, "spec.training.steps") == (7 if config else 100)
