"""Modules that are imported only when they are used, although a library imports them at its start."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def import_on_demand(name: str) -> None:
    """Let ``import name`` return a stand-in, which imports the module when an attribute is first used.

    :class:`importlib.util.LazyLoader` is no use: until Python 3.12, ``import name`` itself makes it load the module.
    """
    if name in sys.modules:
        return

    def load(attribute: str) -> Any:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        return getattr(import_module(name), attribute)

    stand_in = ModuleType(name)
    stand_in.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[name] = stand_in
