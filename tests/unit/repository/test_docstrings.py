"""Examples in docstrings are true."""

import doctest
from importlib import import_module

import pytest

from tests.support.paths import ROOT

FILES = sorted(
    file.relative_to(ROOT) for package in ("api", "worker", "shared") for file in (ROOT / package).rglob("*.py")
)
MODULES = [".".join(file.with_suffix("").parts) for file in FILES if "\n    >>> " in (ROOT / file).read_text("utf-8")]


@pytest.mark.parametrize("module", MODULES)
def test_an_example_is_true(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0
