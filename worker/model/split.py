"""Split GGUF files: ``NAME-00001-of-00003.gguf`` and so on are the parts of one model, as llama.cpp names them.

OpenVINO GenAI opens the first part, and finds the others by their names. The path of such a model is that of its first
part.
"""

import re
from pathlib import Path

_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


def part_names(name: str) -> list[str]:
    """Return the file names of all parts of the model that the file ``name`` is a part of, or ``name`` alone."""
    found = _PART.fullmatch(name)
    if found is None or not int(found[2]):
        return [name]
    return [f"{found[1]}-{number:05}-of-{found[2]}.gguf" for number in range(1, int(found[2]) + 1)]


def parts(path: Path) -> list[Path]:
    """Return the paths of all parts of the model that the GGUF file at ``path`` is a part of, existing or not."""
    return [path.with_name(name) for name in part_names(path.name)]


def whole_name(name: str) -> str:
    """Return the file name that a model would have if it was not split."""
    found = _PART.fullmatch(name)
    return f"{found[1]}.gguf" if found else name


def split_model_in(folder: Path) -> Path | None:
    """Return the first part of the split model in ``folder``, if that is the only model in it."""
    if any(folder.glob("openvino_*.xml")):
        return None
    models = {part_names(file.name)[0] for file in folder.glob("*.gguf")}
    name = next(iter(models), "")
    return folder / name if len(models) == 1 and whole_name(name) != name else None
