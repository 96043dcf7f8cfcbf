"""Imports go downwards: between packages, between the layers of a package, and between modules, without a cycle."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT
from tests.support.requirements import pins

PACKAGES = {
    "shared": frozenset[str](),
    "api": frozenset({"shared"}),
    "worker": frozenset({"shared"}),
    "cli": frozenset({"shared", "api", "worker"}),
}
"""The packages of the product, and what each may import of the others."""

LAYERS = {
    "api": (
        ("main",),
        ("app",),
        ("build",),
        ("operations",),
        ("fleet",),
        ("batches", "responses"),
        ("chat",),
        ("files", "models", "organization", "page"),
        ("http",),
        ("dialects",),
        ("limits",),
        ("keys", "media", "stored"),
        ("fairness", "metrics", "records"),
    ),
    "worker": (
        ("main", "node"),
        ("served_model",),
        ("jobs",),
        ("embed", "simulated"),
        ("openvino",),
        ("prompt",),
        ("grammar",),
        ("engine", "images"),
        ("model", "processes"),
    ),
    "shared": (("parsers", "tracing"), ("protocol",), ("runtime",), ("redis",)),
    "cli": (
        ("main",),
        ("serve", "shell"),
        ("up",),
        ("batch", "bench", "chat", "manage", "monitor"),
        ("base",),
    ),
}
"""The parts of each package (subpackages, and modules outside of them) by layer, from top to bottom. A part imports
parts of lower layers only, and none of its own layer."""

IMAGES = {"api": ("api.main", {"worker.main", "worker.node.main"}), "worker": ("worker.main", {"api.main"})}
"""The server of each image, and those that it can't run. Images have one source, and requirements of their own."""

OPTIONAL = {"api.files.s3": "s3", "shared.tracing.otlp": "otel", "cli.monitor.live_tables": "up"}
"""Modules that are imported only where the packages of another requirements file are installed."""

MAX_TOP_MODULES = 8
"""Maximum number of modules of a package outside of its subpackages."""


@cache
def modules() -> dict[str, Path]:
    """The product's modules by their dotted names."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


@cache
def imported(module: str) -> frozenset[str]:
    """Return the modules of the product that ``module`` imports, also inside functions and for types only."""
    return frozenset(_imported(module))


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        match node:
            case ast.ImportFrom(module=str(source), names=names):
                found = [f"{source}.{name.name}" for name in names]
            case ast.Import(names=names):
                found = [name.name for name in names]
            case _:
                continue
        for name in found:
            yield from {one for one in (name, name.rpartition(".")[0]) if one in modules()} - {module}


def test_packages_import_what_they_may() -> None:
    wrong = [
        f"{module} imports {other}"
        for module in modules()
        for other in imported(module)
        if (package := other.partition(".")[0]) != (own := module.partition(".")[0]) and package not in PACKAGES[own]
    ]
    assert wrong == []


@pytest.mark.parametrize("package", LAYERS)
def test_parts_import_lower_layers(package: str) -> None:
    layer = {part: number for number, parts in enumerate(LAYERS[package]) for part in parts}
    inside = [module for module in modules() if module.startswith(f"{package}.")]
    assert {module.split(".")[1] for module in inside} == layer.keys()
    wrong = [
        f"{module} imports {other}"
        for module in inside
        for other in imported(module)
        if other.startswith(f"{package}.")
        and (part := other.split(".")[1]) != (own := module.split(".")[1])
        and layer[part] <= layer[own]
    ]
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    # A package's __init__ imports its modules; importing a package for one of its modules is no arrow.
    graph = {
        module: {other for other in imported(module) if not module.startswith(f"{other}.")} for module in modules()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("package", LAYERS)
def test_few_modules_are_outside_of_subpackages(package: str) -> None:
    assert len([file for file in (ROOT / package).glob("*.py") if file.name != "__init__.py"]) <= MAX_TOP_MODULES


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for module in modules():
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    assert not {"Sequence", "Mapping", "Iterable", "Collection"} & places.keys()  # as in collections.abc


def test_the_room_of_all_engines_knows_none_of_them() -> None:
    theirs = ("openvino", "worker.openvino", "worker.simulated", "worker.grammar", "shared.parsers.schema_types")
    room = {name: tree_of(name) for name in modules() if ".engine." in name}
    found = {
        (name, f"{source}.{one.name}")
        for name, tree in room.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for source in [node.module if isinstance(node, ast.ImportFrom) else ""]
        for one in node.names
    }
    assert [one for one in found if one[1].lstrip(".").startswith(theirs)] == []
    assert len(room) > 10


def _packages(module: str) -> Iterator[str]:
    """The third-party packages that are imported with ``module``; functions import what may be missing."""
    wanted: list[ast.AST] = [tree_of(module)]
    while wanted:
        match node := wanted.pop():
            case ast.ImportFrom(module=str(source), level=0):
                yield source.partition(".")[0]
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case _:
                wanted += ast.iter_child_nodes(node)


installed = cache(packages_distributions)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_packages_that_its_modules_import(image: str) -> None:
    server, excluded = IMAGES[image]
    wanted, reached = [server, *(module for module in modules() if module.startswith("cli."))], set[str]()
    while wanted:
        if (module := wanted.pop()) not in reached | excluded:
            reached.add(module)
            wanted += imported(module)
    distributions = installed()
    wrong = [
        f"{module} imports {package}"
        for module in sorted(reached)
        for package in _packages(module)
        if package not in {*sys.stdlib_module_names, "compression", *PACKAGES}  # The standard library's since 3.14.
        and not {*map(canonicalize_name, distributions[package])} & pins(OPTIONAL.get(module, image)).keys()
    ]
    assert wrong == []
