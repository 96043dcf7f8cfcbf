"""Tests of the locked requirements: each file names every package that is installed with it, and pip resolves none."""

import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import ROOT
from tests.support.requirements import pins

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]

# What each file is compiled from (see `make lock`): extras of the project, and dependency groups.
FILES = {
    "api": (["api"], []),
    "worker": (["worker"], []),
    "otel": (["otel"], []),
    "s3": (["s3"], []),
    "build": (None, ["build"]),
    "up": (["api", "worker", "up"], ["build"]),
    "dev": ([*EXTRAS], ["build", "dev"]),
    "model": (None, ["model"]),
    "embedding": (None, ["embedding"]),
    "stores": (None, ["stores"]),
}


def roots(file: str) -> list[Requirement]:
    """Return the direct requirements of a file."""
    extras, groups = FILES[file]
    names = [] if extras is None else [*PROJECT["project"]["dependencies"], *(r for e in extras for r in EXTRAS[e])]
    return [Requirement(name) for name in (*names, *(r for group in groups for r in GROUPS[group]))]


def test_every_requirements_file_is_known() -> None:
    assert {file.stem for file in (ROOT / "requirements").glob("*.txt")} == set(FILES)


@pytest.mark.parametrize("file", [file for file in FILES if file not in {"model", "embedding", "stores"}])
def test_a_lock_holds_everything_that_its_packages_require(file: str) -> None:
    locked = pins(file)
    wanted = [(requirement, "") for requirement in roots(file)]
    seen: set[str] = set()
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        assert name in locked, f"requirements/{file}.txt lacks {requirement}"
        assert requirement.specifier.contains(locked[name], prereleases=True), f"{requirement}, locked {locked[name]}"
        for used in ("", *requirement.extras):
            if (key := f"{name}[{used}]") not in seen:
                seen.add(key)
                wanted += [(Requirement(needed), used) for needed in metadata.requires(name) or ()]


@pytest.mark.parametrize("name", ["quart", "uvicorn"])
def test_a_package_whose_private_names_are_used_is_not_newer_than_the_tested_one(name: str) -> None:
    (requirement,) = (found for entry in EXTRAS["api"] if (found := Requirement(entry)).name == name)
    locked = pins("api")[name]
    assert requirement.specifier.contains(locked)
    assert not requirement.specifier.contains(Version(f"{locked.major}.{locked.minor + 1}"))


def test_the_locked_versions_are_installed() -> None:
    for name, version in {**pins("dev"), **pins("model"), **pins("embedding")}.items():
        assert Version(metadata.version(name)) == version, name


@pytest.mark.parametrize("file", ["Makefile", "deploy/docker/Dockerfile"])
def test_no_command_resolves_versions(file: str) -> None:
    text = (ROOT / file).read_text().replace("\\\n", " ")
    (locked,) = re.findall(r"^LOCKED := (.*)", text, re.MULTILINE) or [""]
    commands = re.findall(r"pip (?:--python \S+ )?install [^&;\n]*|\$\(INSTALL\) .*", text)
    assert commands
    for command in commands:
        flags = command.replace("$(LOCKED)", locked + " ").split()
        assert "--no-deps" in flags, command
        assert "--require-hashes" in flags or flags[-1] in {".", "dist/*.whl"}, command
