"""Conversion of a model to an OpenVINO IR folder with another weight format, with a comparison to the original."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy
from numpy.typing import NDArray

from shared.runtime.settings import EngineSettings
from worker.convert.perplexity import perplexity, sample_tokens
from worker.engine.options import EngineOptions
from worker.engine.pipeline import load_pipeline
from worker.model.files import model_bytes
from worker.model.local import ModelError, resolve
from worker.model.vision import sees_images
from worker.weights.compression import Weights, check_tools
from worker.weights.folder import remake
from worker.weights.original import MODEL_FILES, copy_original

MAKING_WEIGHTS = "making weights"
"""Prefix of the stage that reports its own progress."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one model: size in bytes, pipeline load time in seconds, and perplexity."""

    size: int
    load_seconds: float
    perplexity: float


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a conversion to ``folder``. ``tokens`` is the length of the text that the perplexity is measured on."""

    folder: Path
    tokens: int
    original: Measured
    converted: Measured

    @property
    def perplexity_ratio(self) -> float:
        """Perplexity of the converted model divided by that of the original; 1.0 means no loss."""
        return self.converted.perplexity / self.original.perplexity


def convert(
    source: str,
    folder: Path,
    weights: Weights,
    *,
    max_perplexity_ratio: float,
    max_context: int = 0,
    replace: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Conversion:
    """Convert the model ``source`` to an IR folder at ``folder``, which is created only on success.

    ``source`` and ``max_context`` have the same meaning as for :func:`worker.model.local.resolve`. ``replace`` allows
    ``folder`` to be an existing IR folder. ``progress`` is called with a human-readable line for each stage.
    Raises :class:`ModelError` if the source is unavailable, ``folder`` exists, NNCF is missing or fails, or the
    perplexity ratio exceeds ``max_perplexity_ratio``; and :class:`OSError` if files can't be written.
    """
    check_tools(weights)
    _check_destination(folder, replace)
    model = resolve(source, max_context=max_context, to_serve=False)
    if sees_images(model.path):
        raise ModelError(
            f"{model.path} takes images; only text models are converted. Export it with the desired weights: "
            "optimum-cli export openvino --model ID --weight-format int8 FOLDER"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # On the same file system as the destination, so that the result can be renamed.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        progress(f"reading {model.path} ({model_bytes(model.path) / 1e6:.0f} MB)")
        original = copy_original(model, Path(scratch))
        tokens = sample_tokens(original.folder, model.context_length)
        progress(f"measuring the original on {len(tokens)} tokens of text")
        before = _measure(original.folder, original.served, tokens)
        progress(f"{MAKING_WEIGHTS}: {weights}")
        result = remake(original.folder, weights, Path(scratch))
        progress("measuring the result")
        after = _measure(result, result, tokens)
        conversion = Conversion(folder=folder, tokens=len(tokens), original=before, converted=after)
        # Not "ratio > max": a NaN perplexity must fail.
        if not conversion.perplexity_ratio <= max_perplexity_ratio:
            raise ModelError(_excess_loss(conversion, weights, max_perplexity_ratio))
        _move_into_place(result, folder, Path(scratch))
    return conversion


def _check_destination(folder: Path, replace: bool) -> None:
    """Raise :class:`ModelError` unless the result may be placed at ``folder``."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file: name a folder for the result that does not exist yet.")
    inside = {file.name for file in folder.iterdir()}
    if not inside:
        return
    if not replace:
        raise ModelError(f"{folder} exists and is not empty. Name another folder, or replace it with --force.")
    # A mistyped argument must not delete a folder of GGUF files or a home directory.
    foreign = sorted(name for name in inside if (folder / name).is_dir() or name.endswith(".gguf"))
    if foreign or not inside.issuperset(MODEL_FILES):
        reason = f"it holds {foreign[0]}" if foreign else f"it has no {MODEL_FILES[0]}"
        raise ModelError(f"{folder} is not replaced, as it is more than a model's IR folder: {reason}.")


def _measure(folder: Path, served: Path, tokens: NDArray[numpy.int64]) -> Measured:
    """Measure the IR folder ``folder``; ``served`` is the path that a worker would load."""
    options = EngineOptions.from_settings(EngineSettings(), path=str(served), context_length=len(tokens))
    started = time.perf_counter()
    load_pipeline(options, served)
    load_seconds = time.perf_counter() - started
    size = model_bytes(served)
    return Measured(size=size, load_seconds=load_seconds, perplexity=perplexity(folder, tokens))


def _move_into_place(result: Path, folder: Path, scratch: Path) -> None:
    if folder.exists():
        folder.rename(scratch / "replaced")
    result.rename(folder)


def _excess_loss(conversion: Conversion, weights: Weights, most: float) -> str:
    finer = "--weights int8" if weights.group == 32 else "a smaller --group-size, or --weights int8"
    advice = f"Choose {finer}, or allow more." if weights.format == "int4" else "Allow more to accept the loss."
    return (
        f"The converted model's perplexity is {conversion.perplexity_ratio:.3g} times the original's "
        f"({conversion.converted.perplexity:.4g} against {conversion.original.perplexity:.4g}); "
        f"--max-perplexity-ratio allows {most:g}. Nothing was written. {advice}"
    )
