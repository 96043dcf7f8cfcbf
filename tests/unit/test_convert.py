"""Converting a model: the measures are right, packed weights keep their values, nothing of the user's is lost."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy
import openvino
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from openvino import opset13 as opset

from cli.main import main
from worker.convert import conversion
from worker.convert.conversion import convert
from worker.convert.perplexity import perplexity
from worker.model.local import ModelError
from worker.model.vision import VISION_FILES
from worker.weights.activations import fast_properties
from worker.weights.compression import PER_CHANNEL, DamagedModel, Weights, compress
from worker.weights.merge import merge_products

TOKENS = numpy.arange(600) * 7 % 11
"""More than the model is given at least at a time."""


def _bigram_model(folder: Path, logits: NDArray[numpy.float32]) -> Path:
    """An IR whose logits depend on the last token alone, with two of the inputs that language models have."""
    ids = opset.parameter([-1, -1], openvino.Type.i64, name="input_ids")
    ids.output(0).set_names({"input_ids"})
    beams = opset.parameter([-1], openvino.Type.i32, name="beam_idx")
    beams.output(0).set_names({"beam_idx"})
    result = opset.result(opset.gather(opset.constant(logits), opset.gather(ids, beams, 0), 0))
    result.output(0).set_names({"logits"})
    openvino.save_model(openvino.Model([result], [ids, beams]), folder / "openvino_model.xml", compress_to_fp16=False)
    return folder


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_tokens(tmp_path: Path) -> None:
    folder = _bigram_model(tmp_path, numpy.zeros((11, 11), numpy.float32))
    assert perplexity(folder, TOKENS) == pytest.approx(11)


@pytest.mark.parametrize("most", [0, 4 * 11 * 300, 1 << 20], ids=["least", "more", "all"])
def test_the_perplexity_is_that_of_the_tokens_that_follow(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.convert.perplexity._LOGITS_BYTES", most)
    logits = numpy.random.default_rng(1).normal(size=(11, 11)).astype(numpy.float32)
    chances = numpy.exp(logits) / numpy.exp(logits).sum(axis=1, keepdims=True)
    expected = numpy.exp(-numpy.log(chances[TOKENS[:-1], TOKENS[1:]]).mean())
    assert perplexity(_bigram_model(tmp_path, logits), TOKENS) == pytest.approx(expected, rel=1e-5)


def test_one_token_has_no_perplexity(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 2 tokens; there are 1"):
        perplexity(tmp_path, TOKENS[:1])


def _grouped(
    rng: numpy.random.Generator, rows: int, groups: int, size: int, *, first_scale: float | None = None
) -> tuple[openvino.Node, NDArray[numpy.float32]]:
    """Weights as GGUF's and NNCF's int4 formats pack them, and their values."""
    packed = rng.integers(0, 16, (rows, groups, size))
    zero = rng.integers(0, 16, (rows, groups, 1))
    scale = rng.uniform(0.01, 0.1, (rows, groups, 1)).astype(numpy.float16)
    if first_scale is not None:
        scale[0, 0, 0] = first_scale

    def u4(values: NDArray[numpy.int64]) -> openvino.Node:
        constant = openvino.op.Constant(openvino.Type.u4, openvino.Shape(values.shape), values.flatten().tolist())
        return opset.convert(constant, "f16")

    node = opset.multiply(opset.subtract(u4(packed), u4(zero)), opset.constant(scale))
    node = opset.convert(opset.reshape(node, [rows, groups * size], special_zero=False), "f32")
    with numpy.errstate(invalid="ignore"):
        values = ((packed - zero) * scale.astype(numpy.float32)).reshape(rows, -1)
    return node, values.astype(numpy.float32)


def _constant_types(model: openvino.Model) -> set[str]:
    nodes = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
    return {node.get_output_element_type(0).get_type_name() for node in nodes if node.get_byte_size() > 64}


def test_packed_weights_are_unpacked_to_their_values() -> None:
    node, values = _grouped(numpy.random.default_rng(2), 24, 3, 32)
    ids = opset.parameter([-1], openvino.Type.i64)
    # One table as embedding and last layer, as models with tied embeddings have it.
    embedded = opset.gather(node, ids, 0)
    model = openvino.Model([opset.matmul(embedded, node, False, True)], [ids])
    assert "u4" in _constant_types(model)
    plain, properties = compress(model, Weights(format="f16"))
    assert properties == {}
    assert _constant_types(plain) == {"f16"}
    rows = numpy.array([3, 0, 23])
    (found,) = openvino.Core().compile_model(plain, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([rows]).values()
    numpy.testing.assert_allclose(found, values[rows] @ values.T, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("packed", [True, False])
def test_weights_that_are_not_finite_are_refused(value: float, packed: bool) -> None:
    data = opset.parameter([-1, 96], openvino.Type.f32)
    if packed:
        node, _ = _grouped(numpy.random.default_rng(2), 24, 3, 32, first_scale=value)
    else:
        node = opset.constant(numpy.array([[value, *range(95)]] * 24, numpy.float32))
    model = openvino.Model([opset.matmul(data, node, False, True)], [data])
    with pytest.raises(DamagedModel, match="values that are not finite"):
        compress(model, Weights(format="int8"))


def test_an_attention_mask_may_be_infinite() -> None:
    data = opset.parameter([-1, 96], openvino.Type.f32)
    mask = opset.constant(numpy.triu(numpy.full((96, 96), -numpy.inf, numpy.float32), 1))
    compress(openvino.Model([opset.add(data, mask)], [data]), Weights(format="int8"))


@pytest.mark.parametrize("transposed", [True, False])
def test_int8_rows_are_close_to_their_values(transposed: bool) -> None:
    rng = numpy.random.default_rng(4)
    # Rows of very different sizes: a scale that were shared would lose the small ones.
    values = (rng.normal(size=(96, 192)) * numpy.logspace(-2, 2, 96)[:, None]).astype(numpy.float32)
    values[5] = 0
    data = opset.parameter([-1, 192], openvino.Type.f32)
    weights = opset.constant(values if transposed else values.T.copy())
    model = openvino.Model([opset.matmul(data, weights, False, transposed)], [data])
    packed, properties = compress(model, Weights(format="int8"))
    assert _constant_types(packed) == {"i8", "f16"}
    assert properties == {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 96},
        "CPU avx512_bf16": {"INFERENCE_PRECISION_HINT": "bf16"},
    }
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    (found,) = openvino.Core().compile_model(packed, "CPU", exact)([numpy.eye(192, dtype=numpy.float32)]).values()
    off = numpy.abs(found.T - values).max(axis=1)
    assert (off <= numpy.abs(values).max(axis=1) / 127 * 0.56).all()


def test_products_of_one_input_become_one() -> None:
    rng = numpy.random.default_rng(5)
    data = opset.parameter([-1, 64], openvino.Type.f32)
    matrices = [rng.normal(size=(rows, 64)).astype(numpy.float32) for rows in (96, 64, 160)]
    products = [opset.matmul(data, opset.constant(matrix), False, True) for matrix in matrices]
    other = opset.matmul(products[0], opset.constant(matrices[0].T.copy()), False, True)
    model = openvino.Model([*products, other], [data])
    merge_products(model)
    assert sum(node.get_type_name() == "MatMul" for node in model.get_ops()) == 2
    rows = rng.normal(size=(3, 64)).astype(numpy.float32)
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    found = openvino.Core().compile_model(model, "CPU", exact)([rows])
    expected = [rows @ matrix.T for matrix in matrices]
    for at, one in enumerate([*expected, expected[0] @ matrices[0]]):
        numpy.testing.assert_allclose(found[at], one, rtol=1e-4, atol=1e-3)


def _layers(width: int) -> openvino.Model:
    """Three layers, as the first and the last are never made int4."""
    rng = numpy.random.default_rng(3)
    data = opset.parameter([-1, width], openvino.Type.f32)
    node: openvino.Node = data
    for _ in range(3):
        node = opset.matmul(node, opset.constant(rng.normal(size=(width, width)).astype(numpy.float32)), False, True)
    return openvino.Model([node], [data])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Weights(group=32), {"u4", "u8"}),
        (Weights(group=32, small_ends=True), {"u4"}),
        (Weights(group=PER_CHANNEL), {"u4", "u8"}),
        (Weights(format="int8"), {"i8"}),
    ],
)
def test_weights_get_the_format_asked_for(form: Weights, expected: set[str]) -> None:
    types = _constant_types(compress(_layers(128), form)[0])
    assert types & {"f32", "i4", "u4", "i8", "u8"} == expected


@pytest.mark.parametrize(
    ("lengths", "group"),
    [
        ((576, 1536), 96),
        ((2048, 5632), 128),
        ((896, 4864), 128),
        ((576, 1536, 32), 32),
        ((4096, 64), 64),
        ((600, 1200), None),  # 40, 60 and 120 divide them, and are no multiples of 16
        ((40,), None),
        ((), None),
    ],
)
def test_activations_share_a_scale_in_the_largest_groups_that_suit_all_weights(
    lengths: tuple[int, ...], group: int | None
) -> None:
    cpu = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": group}
    bf16 = {"INFERENCE_PRECISION_HINT": "bf16"}
    assert fast_properties(lengths) == ({"CPU": cpu, "CPU avx512_bf16": bf16} if group else {})


@pytest.mark.parametrize(
    ("form", "group"),
    [
        (Weights(group=32), 32),
        (Weights(group=64), 64),
        (Weights(group=PER_CHANNEL), 128),
        (Weights(format="f16"), None),
    ],
)
def test_a_model_states_groups_of_activations_no_longer_than_those_of_its_weights(
    form: Weights, group: int | None
) -> None:
    assert compress(_layers(256), form)[1].get("CPU", {}).get("DYNAMIC_QUANTIZATION_GROUP_SIZE") == group


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="int4 in groups of 48"):
        compress(_layers(128), Weights(group=48))


def test_missing_nncf_is_reported_before_anything_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nncf" else real(name))
    with pytest.raises(ModelError, match=r"pip install --editable '\.\[convert\]'"):
        convert("no-such-model", tmp_path / "new", Weights(), max_perplexity_ratio=1.1)
    with pytest.raises(ModelError, match="no-such-model"):
        convert("no-such-model", tmp_path / "new", Weights(format="f16"), max_perplexity_ratio=1.1)


def _files(folder: Path, names: Sequence[str]) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    return folder


IR = ("openvino_model.xml", "openvino_model.bin", "config.json")


@pytest.mark.parametrize(
    ("names", "replace", "message"),
    [
        (IR, False, "--force"),
        (("notes.txt",), True, r"has no openvino_model\.xml"),
        ((*IR, "model.gguf"), True, r"holds model\.gguf"),
    ],
)
def test_folders_that_hold_something_else_stay(
    names: tuple[str, ...], replace: bool, message: str, tmp_path: Path
) -> None:
    folder = _files(tmp_path / "taken", names)
    with pytest.raises(ModelError, match=message):
        convert("no-such-model", folder, Weights(format="f16"), max_perplexity_ratio=1.1, replace=replace)
    assert sorted(file.name for file in folder.iterdir()) == sorted(names)


def test_folders_that_can_be_had_are_not_in_the_way(tmp_path: Path) -> None:
    empty, old = _files(tmp_path / "empty", ()), _files(tmp_path / "old", IR)
    for folder, replace in ((empty, False), (old, True), (tmp_path / "new", False)):
        with pytest.raises(ModelError, match="no-such-model"):
            convert("no-such-model", folder, Weights(format="f16"), max_perplexity_ratio=1.1, replace=replace)
    assert len(list(old.iterdir())) == len(IR)


def test_a_failed_conversion_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _files(tmp_path / "source", (*IR, "openvino_tokenizer.xml", "openvino_detokenizer.xml"))
    (source / "config.json").write_text('{"max_position_embeddings": 64}')

    def broken(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(conversion, "sample_tokens", broken)
    with pytest.raises(OSError, match="No space"):
        convert(str(source), tmp_path / "new", Weights(format="f16"), max_perplexity_ratio=1.1)
    assert [file.name for file in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--weights", "int8", "--group-size", "64"), "--group-size and --small-ends are for int4 weights"),
        (("--weights", "f16", "--small-ends"), "--weights is f16"),
        (("--group-size", "0"), "at least one weight"),
        (("--group-size", "-2"), "-1"),
        (("--max-perplexity-ratio", "0"), "max-perplexity-ratio"),
        (("--weights", "int3"), "int3"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["model", "convert", "default", str(tmp_path / "new"), *options])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output


def test_the_command_reports_what_is_wrong_with_the_source(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["model", "convert", "no-such", str(tmp_path / "new"), "--weights", "f16"])
    assert outcome.exit_code == 1
    assert "'no-such' was not found" in outcome.output


def test_a_vision_language_model_is_not_converted(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (*VISION_FILES, "openvino_tokenizer.xml", "openvino_detokenizer.xml"):
        (folder / name).touch()
    with pytest.raises(ModelError, match="only text models are converted"):
        convert(str(folder), tmp_path / "result", Weights(format="f16"), max_perplexity_ratio=2, max_context=512)
