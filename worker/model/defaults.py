"""The sampling fields for which a model has its own defaults."""

import json
from pathlib import Path

from shared.protocol.request import Sampling


def default_fields(path: Path) -> frozenset[str]:
    """Return the fields of :class:`Sampling` that the model at ``path`` sets in its ``generation_config.json``.

    A GGUF file has none; the default model's are in :attr:`worker.model.local.LocalModel.sampling`. ``do_sample``
    counts as ``temperature``. A file that is not a JSON object is ignored. Raises :class:`OSError` when it can't be
    read.
    """
    file = path / "generation_config.json"
    if not file.is_file():
        return frozenset()
    try:
        config = json.loads(file.read_bytes())
    except ValueError:
        return frozenset()
    if not isinstance(config, dict):
        return frozenset()
    names = {"temperature" if name == "do_sample" else name for name, value in config.items() if value is not None}
    return frozenset(Sampling.__struct_fields__).intersection(names)
