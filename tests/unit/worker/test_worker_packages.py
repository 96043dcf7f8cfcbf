"""The worker's packages import each other in one direction."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.paths import ROOT

WORKER = ROOT / "worker"


def imported_packages(package: Path) -> set[str]:
    """Return the other packages of the worker that the modules of ``package`` import."""
    names = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.ImportFrom(module=str(module), names=found):
                    names |= {module} | {f"{module}.{name.name}" for name in found}
                case ast.Import(names=found):
                    names |= {name.name for name in found}
    packages = {name.split(".")[1] for name in names if name.startswith("worker.")}
    return {name for name in packages if (WORKER / name).is_dir()} - {package.name}


def test_there_is_no_cycle() -> None:
    packages = [folder for folder in WORKER.iterdir() if (folder / "__init__.py").is_file()]
    graph = {package.name: imported_packages(package) for package in packages}
    assert "engine" in graph["grammar"]
    TopologicalSorter(graph).prepare()  # raises CycleError
