"""Lua scripts that run in the store."""

import re
from collections.abc import Mapping
from importlib.resources import files

_DEFINED = re.compile(r"^local (?:function )?([\w, ]+)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_MARK = "-- prelude\n"


def text_with_prelude(package: str, name: str, constants: Mapping[str, str | int] | None = None) -> str:
    """Return the text of a script in ``package``: its flags, which must come first, and its body. Each call makes its
    functions anew, so before each part of the body, which end with a line :data:`_MARK`, is only what the part needs of
    ``constants`` and ``prelude.lua``, and no earlier part does."""
    folder = files(package)
    flags, _, body = (folder / f"{name}.lua").read_text().partition("\n")
    known = [f"local {constant} = {value!r}" for constant, value in (constants or {}).items()]
    known += (folder / "prelude.lua").read_text().split("\n\n")
    text = [flags]
    for part in body.split(_MARK):
        needed, used = [part], _words(part)
        for definition in reversed(known):
            if not used.isdisjoint(_words(" ".join(_DEFINED.findall(definition)))):
                needed.append(definition)
                used |= _words(definition)
        text += reversed(needed)
        known = [definition for definition in known if definition not in needed]
    return "\n".join(text)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", _COMMENT.sub("", text)))
