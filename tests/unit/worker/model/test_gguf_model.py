"""The graph of a GGUF file computes the logits of a model in numpy: for each type, and each key that is applied."""

from pathlib import Path
from typing import Any

import numpy
import openvino
import pytest
from numpy.typing import NDArray

from shared.runtime.settings import EngineSettings
from tests.support.fleet import ONE_THREAD
from tests.support.gguf_files import tiny_llama
from tests.support.gguf_reference import Reference
from worker.model.gguf_model import GGUFModel
from worker.model.rope import read_rotation
from worker.model.source import ModelError
from worker.openvino import weights
from worker.openvino.export import MODEL_FILES, export_gguf
from worker.openvino.load import EXACT
from worker.openvino.options import OpenVINOOptions
from worker.openvino.weights import serving_path

TOKENS = [*range(5, 45)]
POSITIONS = [*range(20), *range(1500, 1520)]


def _logits(folder: Path) -> NDArray[numpy.float32]:
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(folder / MODEL_FILES[0]), "CPU", EXACT | ONE_THREAD)
    count = len(TOKENS)
    inputs = {"input_ids": [TOKENS], "attention_mask": numpy.ones((1, count)), "position_ids": [POSITIONS]}
    ints = {name: numpy.array(value, numpy.int64) for name, value in inputs.items()}
    return numpy.array(compiled(ints | {"beam_idx": numpy.zeros(1, numpy.int32)})[0][0])


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float((one * other).sum() / numpy.sqrt((one**2).sum() * (other**2).sum()))


def _write(folder: Path, **options: Any) -> Path:
    file = folder / "tiny.gguf"
    file.write_bytes(tiny_llama(**options))
    return file


UNPACKED = ("Q4_K", "Q5_0", "IQ4_XS", "BF16", "Q6_K")
"""Types that are unpacked here, as all types of a file with one of them are."""


@pytest.mark.parametrize(("kind", "number"), [(UNPACKED, 15), ("Q6_K", 15), ("F32", 0), ("F16", 1)], ids=str)
def test_the_weights_of_a_type_make_the_logits_of_a_model_in_numpy(
    tmp_path: Path, kind: str | tuple[str, ...], number: int
) -> None:
    file = _write(tmp_path, width=256, kind=kind, metadata={"general.file_type": number})
    exported = export_gguf(file, 64, tmp_path, exact=True)
    assert _cosine(_logits(exported), Reference(file).logits(TOKENS, POSITIONS)) > 0.99999
    assert not list(exported.glob("*.gguf"))


def test_a_file_that_states_no_type_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(tiny_llama(kind="Q8_0").replace(b"general.file_type", b"general.file_tipe"))
    assert not GGUFModel(file).is_readable
    assert _cosine(_logits(export_gguf(file, 64, tmp_path)), Reference(file).logits(TOKENS, POSITIONS)) > 0.99999


HEAD, BASE = 32, 10000.0
PLAIN = BASE ** -(numpy.arange(0, HEAD, 2) / HEAD)
FACTORS = [1.0] * 5 + [2.5] * 4 + [8.0] * 7
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 256}


def _yarn() -> NDArray[numpy.float64]:
    """By the formulas of the paper, written down from transformers' meaning of its parameters."""
    made = PLAIN.copy()
    low, high = (HEAD * numpy.log(256 / (turns * 2 * numpy.pi)) / (2 * numpy.log(BASE)) for turns in (32, 1))
    for pair in range(HEAD // 2):
        share = min(1, max(0, (pair - max(numpy.floor(low), 0)) / (numpy.ceil(high) - max(numpy.floor(low), 0))))
        made[pair] = PLAIN[pair] * (1 - share) + PLAIN[pair] / 4 * share
    return made


@pytest.mark.parametrize(
    ("keys", "factors", "frequencies", "scale"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, None, PLAIN / 4, 1),
        ({"rope.scale_linear": 2.0}, None, PLAIN / 2, 1),
        ({}, FACTORS, PLAIN / FACTORS, 1),
        (YARN, None, _yarn(), (1 + 0.1 * numpy.log(4)) ** 2),
        (YARN | {"rope.scaling.attn_factor": 0.5}, None, _yarn(), (0.5 * (1 + 0.1 * numpy.log(4))) ** 2),
    ],
)
def test_keys_that_genai_ignores_are_applied(
    tmp_path: Path, keys: dict[str, Any], factors: list[float] | None, frequencies: NDArray[Any], scale: float
) -> None:
    metadata = {f"llama.{key}": value for key, value in keys.items()} | {"general.file_type": 7}
    more: dict[str, Any] = {}
    if factors is not None:
        more = {"tensors": {"rope_freqs.weight": len(factors)}, "vectors": {"rope_freqs.weight": factors}}
    file = _write(tmp_path, layers=2, kind="Q8_0", metadata=metadata, **more)
    model = GGUFModel(file)
    assert model.needs_export
    assert model.is_exact
    logits = _logits(export_gguf(file, 64, tmp_path))
    right = Reference(file, frequencies=frequencies, scale=scale * HEAD**-0.5).logits(TOKENS, POSITIONS)
    assert _cosine(logits, right) > 0.99999
    assert _cosine(logits, Reference(file).logits(TOKENS, POSITIONS)) < 0.9999, "the keys make no difference"


def test_a_file_without_such_keys_stays_with_genai(tmp_path: Path) -> None:
    for keys in ({}, {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}):
        metadata = {f"llama.{key}": value for key, value in keys.items()}
        assert not GGUFModel(_write(tmp_path, metadata=metadata)).needs_export


def test_a_graph_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _write(tmp_path, metadata={"llama.rope.scaling.factor": 4.0})
    wrong = read_rotation({"rope.freq_base": 77.0, "rope.scaling.factor": 4.0}, HEAD, None)
    monkeypatch.setattr(GGUFModel, "rotation", wrong)
    with pytest.raises(ModelError, match="another form than expected"):
        export_gguf(file, 64, tmp_path)


def test_what_is_loaded_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, where GenAI computes what is in it; otherwise an IR folder; int8 rows, where they are faster."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def loaded(wanted: str, **options: Any) -> str:
        file = _write(tmp_path, **options)
        settings = EngineSettings(weights=wanted)
        path = serving_path(
            OpenVINOOptions.from_settings(settings, path=str(file), context_length=64), lambda stage: None
        )
        return "file" if path == file else path.name.split("-")[1]

    scaled: dict[str, Any] = {"kind": "Q8_0", "metadata": {"llama.rope.scaling.factor": 2.0}}
    assert [loaded("original", kind=kind) for kind in ("Q8_0", "Q5_0")] == ["file", "original"]
    assert [loaded(wanted, **scaled) for wanted in ("original", "auto")] == ["original", "int8"]
    monkeypatch.setattr(weights, "SMALL_MODEL", 0)
    monkeypatch.setattr(weights, "_LARGEST", 0)
    assert [loaded("auto", kind=kind) for kind in ("Q8_0", "Q5_1")] == ["file", "int8"]
    monkeypatch.setattr(weights, "free_memory", lambda: 1)
    with pytest.raises(ModelError, match=r"0\.0 GB of memory"):
        loaded("auto", kind="Q3_K", width=256)
