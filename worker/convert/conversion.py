"""From a model source to an OpenVINO IR folder with weights in another format, compared with the original."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy
from numpy.typing import NDArray

from shared.runtime.settings import EngineSettings
from worker.convert.folder import remake
from worker.convert.original import MODEL_FILES, bring
from worker.convert.perplexity import perplexity, sample_tokens
from worker.convert.weights import Weights, check_tools
from worker.engine.model_files import model_bytes
from worker.engine.options import EngineOptions
from worker.engine.pipeline import load_pipeline
from worker.models import ModelError, resolve


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One side of the comparison: size in bytes, seconds from start to a loaded pipeline, perplexity."""

    size: int
    load_seconds: float
    perplexity: float


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What was converted to ``folder``, and how it compares. ``tokens``: the length of the text for the perplexity."""

    folder: Path
    tokens: int
    original: Measured
    converted: Measured

    @property
    def perplexity_ratio(self) -> float:
        """Perplexity of the converted model to that of the original: 1.0 is no loss."""
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
    """Convert what ``--model`` takes to an IR folder at ``folder``, which appears only when all is well.

    ``max_context`` is what it is for :func:`worker.models.resolve`.
    ``replace`` lets it take the place of another IR folder; ``progress`` is called with each stage, for people.
    Raises :class:`ModelError` when the source can't be had, ``folder`` is taken, NNCF is missing or can't do it, or
    the quality suffers more than ``max_perplexity_ratio``; and :class:`OSError` when files can't be written.
    """
    check_tools(weights)
    _check_place(folder, replace)
    model = resolve(source, max_context=max_context, to_serve=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that the result only needs to be renamed.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        progress(f"reading {model.path} ({model_bytes(model.path) / 1e6:.0f} MB)")
        original = bring(model, Path(scratch))
        tokens = sample_tokens(original.folder, model.context_length)
        progress(f"measuring the original on {len(tokens)} tokens of text")
        before = _measure(original.folder, original.served, tokens)
        progress(f"making weights: {weights}")
        result = remake(original.folder, weights, Path(scratch))
        progress("measuring the result")
        after = _measure(result, result, tokens)
        conversion = Conversion(folder=folder, tokens=len(tokens), original=before, converted=after)
        # Not "ratio > most": a perplexity that is no number must fail.
        if not conversion.perplexity_ratio <= max_perplexity_ratio:
            raise ModelError(_too_bad(conversion, weights, max_perplexity_ratio))
        _put(result, folder, Path(scratch))
    return conversion


def _check_place(folder: Path, replace: bool) -> None:
    """Raise :class:`ModelError` unless a result may be put at ``folder``."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file: name a folder for the result that does not exist yet.")
    inside = {file.name for file in folder.iterdir()}
    if not inside:
        return
    if not replace:
        raise ModelError(f"{folder} exists and is not empty. Name another folder, or replace it with --force.")
    # A folder of GGUF files, or a home, must not go away for a slip of the finger.
    foreign = sorted(name for name in inside if (folder / name).is_dir() or name.endswith(".gguf"))
    if foreign or not inside.issuperset(MODEL_FILES):
        reason = f"it holds {foreign[0]}" if foreign else f"it has no {MODEL_FILES[0]}"
        raise ModelError(f"{folder} is not replaced, as it is more than a model's IR folder: {reason}.")


def _measure(folder: Path, served: Path, tokens: NDArray[numpy.int64]) -> Measured:
    """Measure an IR folder; ``served`` is what a worker would load."""
    options = EngineOptions.from_settings(EngineSettings(), path=str(served), context_length=len(tokens))
    started = time.perf_counter()
    load_pipeline(options, served)
    load_seconds = time.perf_counter() - started
    size = model_bytes(served)
    return Measured(size=size, load_seconds=load_seconds, perplexity=perplexity(folder, tokens))


def _put(result: Path, folder: Path, scratch: Path) -> None:
    if folder.exists():
        folder.rename(scratch / "replaced")
    result.rename(folder)


def _too_bad(conversion: Conversion, weights: Weights, most: float) -> str:
    finer = "--weights int8" if weights.group == 32 else "a smaller --group-size, or --weights int8"
    advice = f"Choose {finer}, or allow more." if weights.format == "int4" else "Allow more to have it all the same."
    return (
        f"The converted model's perplexity is {conversion.perplexity_ratio:.3g} times the original's "
        f"({conversion.converted.perplexity:.4g} against {conversion.original.perplexity:.4g}); "
        f"--max-perplexity-ratio allows {most:g}. Nothing was written. {advice}"
    )
