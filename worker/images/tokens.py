"""The tokens of images in prompts, of models where they follow from the size alone.

Source: how OpenVINO GenAI's pipeline prepares images. It writes a text around their tokens.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import Image


class ImageTokens:
    """Counts the tokens of images for one model."""

    def __init__(self, path: Path | None) -> None:
        """``path`` is the model's folder; None for a simulated engine, in which images have no tokens."""
        self._type = str(_read(path / "config.json").get("model_type")) if path else ""
        self._count = _counter(self._type, _read(path / "preprocessor_config.json")) if path else lambda *size: 0

    def of(self, images: Sequence[Image], sizes: Iterable[tuple[int, int]]) -> int:
        """Return the tokens of all ``images``, whose widths and heights in pixels are ``sizes``.

        Raises :class:`RequestRefused` if only the engine knows them.
        """
        if self._count is None:
            reason = f"Not supported: the tokens of images are not known before a '{self._type}' model has read them."
            raise refuse(ProblemKind.INVALID, reason, param=images[0].param)
        return sum(self._count(width, height) for width, height in sizes)


def _counter(kind: str, processor: dict[str, Any]) -> Callable[[int, int], int] | None:
    match kind, processor:
        case "qwen2_vl" | "qwen2_5_vl", {
            "patch_size": int(patch),
            "merge_size": int(merged),
            "min_pixels": int(least),
            "max_pixels": int(most),
        }:
            return partial(_tiles, patch * merged, least, most)
        case "llava", {"patch_size": int(patch), "crop_size": {"height": int(height), "width": int(width)}}:
            return lambda *size: (height // patch) * (width // patch) + 1
    return None


def _tiles(side: int, least: int, most: int, width: int, height: int) -> int:
    """Return the tiles of an image whose area is scaled into bounds, with the two tokens around them."""
    across, down = (max(1, math.floor(length / side + 0.5)) for length in (width, height))
    area, scaled = width * height, across * down * side * side
    if scaled > most:
        across, down = (max(1, math.floor(length / math.sqrt(area / most) / side)) for length in (width, height))
    elif scaled < least:
        across, down = (math.ceil(length * math.sqrt(least / area) / side) for length in (width, height))
    return across * down + 2


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
