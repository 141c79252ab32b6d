"""Nothing that a user may write is ignored: each option has code that reads it.

Attributes are compared by name alone: an option whose name is read of something else, too, passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from rl_contracts import env
from rl_contracts.spec.base import Resources
from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus
from rl_contracts.stores.clients.settings import StoreSettings

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("operator", "trainer_image", "sampler_image", "console")
SPEC = ROOT / "contracts" / "rl_contracts" / "spec"
WRITTEN_WHOLE: dict[type[BaseModel], str] = {Resources: "to_kubernetes"}
"""Models whose fields go into an object all together, by this method."""


def parsed(*folders: Path) -> list[ast.AST]:
    return [ast.parse(path.read_text()) for folder in folders for path in folder.rglob("*.py")]


def attributes(trees: list[ast.AST]) -> set[str]:
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def words(trees: list[ast.AST]) -> set[str]:
    """Names of arguments and strings: what sets a field, or takes it by its name."""
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def program_trees() -> list[ast.AST]:
    contracts = [path for path in SPEC.parent.iterdir() if path.is_dir() and path != SPEC]
    modules = [ast.parse(path.read_text()) for path in SPEC.parent.glob("*.py")]
    return parsed(*(ROOT / name for name in PROGRAMS), *contracts) + modules


READ = attributes(program_trees())
PROPERTIES = {
    (owner.name, function.name): attributes([function])
    for tree in parsed(SPEC)
    for owner in ast.walk(tree)
    if isinstance(owner, ast.ClassDef)
    for function in owner.body
    if isinstance(function, ast.FunctionDef)
}
"""What each method of a spec model reads, by class and method."""


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """All models that a field of this type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)
    for part in get_args(annotation):
        yield from models(part)


def fields(*roots: type[BaseModel]) -> list[tuple[type[BaseModel], str]]:
    """Model and field, each once, in a settled order."""
    fields = {
        (model, name) for root in roots for model in models(root) for name in model.model_fields
    }
    return sorted(fields, key=lambda field: (field[0].__name__, field[1]))


def is_read(model: type[BaseModel], name: str) -> bool:
    if name in READ:
        return True
    owners = {base.__name__ for base in model.__mro__}
    through = {
        method for (owner, method), reads in PROPERTIES.items() if owner in owners and name in reads
    }
    return bool(through & READ) or WRITTEN_WHOLE.get(model) in READ


@pytest.mark.parametrize(
    ("model", "name"),
    fields(RLJobSpec, SamplerPoolSpec, StoreSettings),
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_each_option_is_read(model: type[BaseModel], name: str) -> None:
    assert is_read(model, name), f"nothing reads {model.__name__}.{name}"


def test_an_option_that_nothing_reads_is_detected() -> None:
    class Unread(BaseModel):
        nobody_asks_for_this: int = 0

    assert not is_read(Unread, "nobody_asks_for_this")


def test_each_status_field_is_set_by_the_operator() -> None:
    set_somewhere = words(parsed(ROOT / "operator"))
    assert [
        f"{model.__name__}.{name}"
        for model, name in fields(RLJobStatus, SamplerPoolStatus)
        if name not in set_somewhere
    ] == []


def variables() -> list[str]:
    """Names in ``env`` of the variables that pods are told."""
    return [name for name, value in vars(env).items() if str(value).startswith("RL_")]


def test_each_variable_of_a_pod_is_set_and_read() -> None:
    set_by_operator = attributes(parsed(ROOT / "operator"))
    # One pod's processes are told apart by who starts them.
    set_by_launcher = {"LOCAL_RANK"} & attributes(parsed(ROOT / "trainer_image"))
    tree = ast.parse(Path(env.__file__).read_text())
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    parsed_names = {
        node.id for class_ in classes for node in ast.walk(class_) if isinstance(node, ast.Name)
    }
    assert len(variables()) > 10
    assert set(variables()) - set_by_operator - set_by_launcher == set()
    assert set(variables()) - parsed_names == set()


def test_each_parsed_variable_is_used() -> None:
    assert [
        f"{kind.__name__}.{name}"
        for kind in (env.TrainerEnv, env.SamplerEnv)
        for name in kind.__dataclass_fields__
        if name not in READ
    ] == []
