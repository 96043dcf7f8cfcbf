"""``vinoqueue model convert``: convert a model to an OpenVINO IR folder with another weight format."""

import importlib.util
from pathlib import Path
from typing import Literal

import click

from cli.progress import Stages

_GROUP_SIZE = 32


@click.command()
@click.argument("source")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--weights",
    type=click.Choice(["int4", "int8", "f16"]),
    default="int4",
    show_default=True,
    help="Weight format. In an int4 model, the embeddings and the last layer are int8.",
)
@click.option(
    "--group-size",
    type=click.IntRange(min=-1),
    help="Number of int4 weights that share a scale; -1 for one scale per row. Larger groups make the model smaller "
    f"and less accurate.  [default: {_GROUP_SIZE}]",
)
@click.option("--small-ends", is_flag=True, help="Also store the embeddings and the last layer as int4.")
@click.option(
    "--max-perplexity-ratio",
    type=click.FloatRange(min=0, min_open=True),
    default=1.1,
    show_default=True,
    help="Maximum ratio of the converted to the original perplexity; above it, nothing is written.",
)
@click.option(
    "--max-context",
    type=click.IntRange(min=0),
    default=0,
    help="Context length in tokens, for models that do not state one.",
)
@click.option("--force", is_flag=True, help="Replace FOLDER if it contains a model's IR.")
def convert(
    source: str,
    folder: Path,
    weights: Literal["int4", "int8", "f16"],
    group_size: int | None,
    small_ends: bool,
    max_perplexity_ratio: float,
    max_context: int,
    force: bool,
) -> None:
    """Convert a model to an OpenVINO IR folder, which 'vinoqueue worker --model FOLDER' serves.

    SOURCE has the same form as for 'vinoqueue worker --model'. The size, load time and perplexity of the model are
    measured before and after. The perplexity, on a sample text shipped with Vinoqueue, shows the loss of quality.

    \b
    vinoqueue model convert default ./SmolLM2-135M-Instruct
    vinoqueue model convert org/name:file.gguf ./name --weights int8
    """
    if weights != "int4" and (small_ends or group_size is not None):
        raise click.UsageError(f"--group-size and --small-ends are for int4 weights, but --weights is {weights}.")
    if group_size == 0:
        raise click.BadParameter("a group has at least one weight; -1 means a whole row.", param_hint="--group-size")
    if importlib.util.find_spec("openvino_genai") is None:
        raise click.ClickException(
            "OpenVINO is not installed here. Convert where workers run: in the worker's image, or in Vinoqueue's "
            "repository after 'make install', with .venv/bin/vinoqueue."
        )
    # Imported here because the API's image does not include OpenVINO.
    from worker.convert.conversion import MAKING_WEIGHTS
    from worker.convert.conversion import convert as convert_model
    from worker.model.local import ModelError
    from worker.weights.compression import Weights

    try:
        with Stages() as stages:
            done = convert_model(
                source,
                folder,
                Weights(format=weights, group=group_size or _GROUP_SIZE, small_ends=small_ends),
                max_perplexity_ratio=max_perplexity_ratio,
                max_context=max_context,
                replace=force,
                progress=lambda stage: stages.begin(stage, silent=not stage.startswith(MAKING_WEIGHTS)),
            )
    except (ModelError, OSError) as error:
        raise click.ClickException(str(error)) from None
    for name, measured in (("original", done.original), ("converted", done.converted)):
        click.echo(
            f"{name:9}  {measured.size / 1e6:.0f} MB  loads in {measured.load_seconds:.1f} s  "
            f"perplexity {measured.perplexity:.3f}"
        )
    click.echo(f"perplexity ratio {done.perplexity_ratio:.4f} on {done.tokens} tokens of text")
    click.echo(done.folder)
