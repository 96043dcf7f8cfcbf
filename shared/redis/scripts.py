"""Lua scripts that run in the store."""

from collections.abc import Mapping
from importlib.resources import files


def text_with_prelude(package: str, name: str, constants: Mapping[str, str | int] | None = None) -> str:
    """Return the text of a script in ``package``: its flags, which must come first, ``constants``, ``prelude.lua``, and
    the body."""
    folder = files(package)
    flags, _, body = (folder / f"{name}.lua").read_text().partition("\n")
    head = "".join(f"local {constant} = {value!r}\n" for constant, value in (constants or {}).items())
    return f"{flags}\n{head}{(folder / 'prelude.lua').read_text()}{body}"
