"""What the ``generation_config.json`` and ``config.json`` of an IR folder say about generation, with the meaning that
they have in transformers. A GGUF file states nothing here."""

import json
import logging
from pathlib import Path
from typing import Any

from shared.protocol.request import Sampling

logger = logging.getLogger(__name__)

RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "top_k": (0, 2**31 - 1),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.0, 100.0),
    "min_tokens": (0, 2**31 - 1),
    "max_tokens": (0, 2**63 - 1),
    "seed": (0, 2**64 - 1),
}
"""Sampling fields with the least and the highest value that an engine takes, both inclusive except as below."""

OPEN_BELOW, OPEN_ABOVE = {"repetition_penalty"}, {"min_p"}
"""Fields whose least or highest value is excluded."""

_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"} | {
    name: name for name in ("max_length", "length_penalty", *RANGES) if name not in ("max_tokens", "min_tokens", "seed")
}
"""Fields of :class:`Sampling` by their names in a file."""


def in_range(field: str, value: float) -> bool:
    """Return whether an engine takes ``value`` for a sampling field."""
    least, most = RANGES.get(field, (-(2.0**63), 2.0**63))
    above = value > least or (value == least and field not in OPEN_BELOW)
    return above and (value < most or (value == most and field not in OPEN_ABOVE))


def default_sampling(path: Path) -> Sampling:
    """Return the sampling that the model at ``path`` states.

    Without ``do_sample``, a model is greedy by default, and so it is at a temperature of 0. A ``top_k`` below 0 has no
    effect. Values that no engine takes are ignored with a warning. Raises :class:`OSError` when the file can't be read.
    """
    config = _read(path / "generation_config.json")
    stated: dict[str, Any] = {}
    for name, field in _NAMES.items():
        value: Any = config.get(name)
        if name == "top_k" and isinstance(value, int):
            value = max(value, 0)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (whole or (isinstance(value, float) and field in _FRACTIONS)) and in_range(field, value):
            stated[field] = value
        elif value is not None:
            logger.warning("generation_config.json of %s: %s has no effect, because it is %r", path.name, name, value)
    if config.get("do_sample") is not None or "temperature" in stated:
        stated["temperature"] = stated.get("temperature", 1.0) if config.get("do_sample") else 0.0
    return Sampling(**stated)


_FRACTIONS = {"length_penalty", *RANGES} - {"top_k", "min_tokens", "max_tokens", "seed"}


def end_tokens(path: Path) -> frozenset[int]:
    """Return the ids that end a text of the model at ``path``, as far as its files state them.

    Those of ``generation_config.json`` have precedence. Raises :class:`OSError` when a file can't be read.
    """
    config = _read(path / "config.json")
    text = config.get("text_config")
    for section in (_read(path / "generation_config.json"), config, text if isinstance(text, dict) else {}):
        stated = section.get("eos_token_id")
        ids = frozenset(one for one in (stated if isinstance(stated, list) else [stated]) if isinstance(one, int))
        if ids:
            return ids
    return frozenset()


def stop_strings(path: Path) -> tuple[str, ...]:
    """Return the texts that end a text of the model at ``path``. Raises :class:`OSError` when they can't be read."""
    stated = _read(path / "generation_config.json").get("stop_strings")
    return tuple(one for one in (stated if isinstance(stated, list) else [stated]) if isinstance(one, str) and one)


def _read(file: Path) -> dict[str, Any]:
    """Return the JSON object in ``file``; an empty one if there is no such file, or something else in it."""
    try:
        config = json.loads(file.read_bytes()) if file.is_file() else {}
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}
