"""What holds where a client leaves a field of the sampling open: the model's own word, else the interface's."""

import json
from collections.abc import Collection
from pathlib import Path

import msgspec

from shared.protocol.request import Sampling


def stated_fields(path: Path) -> frozenset[str]:
    """Return the fields of :class:`Sampling` that the model at ``path`` sets in its ``generation_config.json``.

    A GGUF file has none; the default model's are in :attr:`worker.models.LocalModel.sampling`. ``temperature`` stands
    for ``do_sample``, too. Raises :class:`OSError` when the file can't be read; one that is not a JSON object says
    nothing.
    """
    file = path / "generation_config.json"
    if not file.is_file():
        return frozenset()
    try:
        stated = json.loads(file.read_bytes())
    except ValueError:
        return frozenset()
    if not isinstance(stated, dict):
        return frozenset()
    names = {"temperature" if name == "do_sample" else name for name, value in stated.items() if value is not None}
    return frozenset(Sampling.__struct_fields__).intersection(names)


def fill_in(sampling: Sampling, defaults: Sampling, stated: Collection[str] = ()) -> Sampling:
    """Return ``sampling`` with ``defaults`` where it is open and the model has not ``stated`` its own."""
    fields = {
        field: value
        for field in Sampling.__struct_fields__
        if field not in stated and getattr(sampling, field) is None and (value := getattr(defaults, field)) is not None
    }
    return msgspec.structs.replace(sampling, **fields)
