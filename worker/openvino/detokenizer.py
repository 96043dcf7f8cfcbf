"""Makes tokenizers for pipelines: OpenVINO models in a folder, as OpenVINO GenAI opens them."""

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset
from openvino.utils.node_factory import NodeFactory

TOKENIZER, DETOKENIZER = "openvino_tokenizer.xml", "openvino_detokenizer.xml"
"""The files of the two models in a folder."""


def _extension() -> Path:
    # Not imported: the package also loads its converters, which takes longer than reading a vocabulary.
    package = find_spec("openvino_tokenizers")
    if package is None or package.origin is None:
        raise RuntimeError("the package openvino-tokenizers is not installed")
    return next(Path(package.origin).parent.glob("lib/*openvino_tokenizers*"))


@cache
def tokenizer_core() -> openvino.Core:
    """Return the core that reads and compiles tokenizers."""
    core = openvino.Core()
    core.add_extension(_extension())
    return core


@cache
def _operations() -> NodeFactory:
    factory = NodeFactory()
    factory.add_extension(_extension())
    return factory


def detokenizer(pieces: Sequence[bytes], special: Collection[int]) -> openvino.Model:
    """Return a detokenizer with the bytes of each token in ``pieces``; it can skip the ids in ``special``."""
    bounds = numpy.array([0, *accumulate(map(len, pieces))], numpy.int32)
    # Without an id to skip, GenAI can't open it.
    skipped = numpy.array(sorted(special) or [len(pieces)], numpy.int32)
    values = (bounds[:-1], bounds[1:], numpy.frombuffer(b"".join(pieces), numpy.uint8), skipped)
    tokens, create = opset.parameter([-1, -1], numpy.int64), _operations().create
    inputs = [opset.convert(tokens, "i32").output(0), *(opset.constant(value).output(0) for value in values)]
    looked_up = create("VocabDecoder", inputs)
    joined = create("FuzeRagged", looked_up.outputs()[:4])
    text = create("StringTensorPack", [*joined.outputs(), looked_up.output(4)])
    return openvino.Model([opset.result(text.output(0))], [tokens], "detokenizer")


def open_models(
    models: Mapping[str, openvino.Model], settings: Mapping[str, Path | dict[str, Any]]
) -> openvino_genai.Tokenizer:
    """Return the tokenizer of ``models``, by file name, whose settings are files or the content of JSON files.

    Raises :class:`RuntimeError` when OpenVINO fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, content in settings.items():
            if isinstance(content, dict):
                (folder / name).write_text(json.dumps(content))
            elif Path(name).stem not in {Path(model).stem for model in models}:
                (folder / name).symlink_to(content.absolute())
        for name, model in models.items():
            openvino.save_model(model, folder / name, compress_to_fp16=False)
        return openvino_genai.Tokenizer(scratch)
