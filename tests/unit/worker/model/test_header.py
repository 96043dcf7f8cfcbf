"""What of a GGUF file's header is applied, refused or without effect: key by key, on tiny files."""

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.gguf_files import tiny_llama
from worker.model.header import KEYS, loaded_bytes
from worker.model.local import LocalModel, resolve
from worker.model.source import ModelError


def _resolve(folder: Path, *, max_context: int = 0, **options: Any) -> LocalModel:
    file = folder / "tiny.gguf"
    file.write_bytes(tiny_llama(**options))
    return resolve(str(file), max_context=max_context)


NEUTRAL: dict[str, list[Any]] = {
    "attention.causal": [True],
    "attention.value_length": [32],
    "attention.scale": [32**-0.5],
    "attention.sliding_window": [0, 2048],
    "rope.dimension_count": [32],
    "rope.scaling.type": ["none", "linear", "yarn"],
    "rope.scaling.yarn_ext_factor": [1.0],
    "rope.scaling.yarn_attn_factor": [1.0],
    "attn_logit_softcapping": [0.0],
    "final_logit_softcapping": [0.0],
    "logit_scale": [1.0],
    "residual_scale": [1.0],
    "embedding_scale": [1.0],
    "attention.clamp_kqv": [0.0],
    "attention.max_alibi_bias": [0.0],
    "expert_count": [0],
    "expert_used_count": [0],
    "nextn_predict_layers": [0],
    "use_parallel_residual": [False],
}
"""The values with which a key is no other model."""

APPLIED = {
    "context_length", "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.layer_norm_rms_epsilon", "rope.freq_base", "feed_forward_length", "vocab_size",
    "attention.layer_norm_epsilon", "rope.scale_linear", "rope.scaling.finetuned",
    "rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
}  # fmt: skip


def test_every_key_is_applied_or_has_neutral_values() -> None:
    assert APPLIED | set(NEUTRAL) == set(KEYS)
    assert not APPLIED & set(NEUTRAL)


@pytest.mark.parametrize("key", NEUTRAL)
def test_a_key_is_refused_by_name_unless_it_has_no_effect(tmp_path: Path, key: str) -> None:
    for value in NEUTRAL[key]:
        assert _resolve(tmp_path, metadata={f"llama.{key}": value}).warnings == ()
    other = {str: "longrope", bool: not NEUTRAL[key][0], int: 7, float: 7.5}[type(NEUTRAL[key][0])]
    for value in (other, "text"):
        with pytest.raises(ModelError, match=rf"tiny\.gguf can't be served: llama\.{key} = {value!r} is not applied"):
            _resolve(tmp_path, metadata={f"llama.{key}": value})


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_number_without_a_meaning_is_refused(tmp_path: Path, key: str) -> None:
    for value in (-2.0, "text"):
        with pytest.raises(ModelError, match=rf"llama\.{key} = {value!r} is not applied"):
            _resolve(tmp_path, metadata={f"llama.{key}": value})


def test_a_window_as_long_as_the_served_context_has_no_effect(tmp_path: Path) -> None:
    window: dict[str, Any] = {"metadata": {"llama.attention.sliding_window": 512}}
    assert _resolve(tmp_path, max_context=512, **window).context_length == 512
    with pytest.raises(ModelError, match="sliding_window"):
        _resolve(tmp_path, **window)


def test_a_key_that_differs_between_layers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"llama\.attention\.head_count_kv differs between layers"):
        _resolve(tmp_path, metadata={"llama.attention.head_count_kv": [2, 1]})


@pytest.mark.parametrize("key", ["rope.new_thing", "attention.temperature", "new_scale", "new.freq_factor"])
def test_an_unknown_key_that_may_change_numbers_is_a_warning(tmp_path: Path, key: str) -> None:
    (warning,) = _resolve(tmp_path, metadata={f"llama.{key}": 3, "llama.new_name": "x"}).warnings
    assert f"llama.{key}" in warning


@pytest.mark.parametrize(
    "name", ["rope_factors_long.weight", "output.bias", "blk.0.attn_qkv.weight", "blk.0.attn_q.scale"]
)
def test_a_tensor_that_nothing_applies_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=rf"its tensor {name} is not applied"):
        _resolve(tmp_path, tensors={name: 16})


@pytest.mark.parametrize(("number", "name"), [(16, "IQ2_XXS"), (29, "IQ1_M"), (99, "99")])
def test_a_type_of_tensor_that_is_not_served_is_named_with_those_that_are(
    tmp_path: Path, number: int, name: str
) -> None:
    tensor = struct.pack("<Q", len(b"blk.0.attn_q.weight")) + b"blk.0.attn_q.weight" + struct.pack("<IQQ", 2, 64, 64)
    content = tiny_llama()
    assert content.count(tensor + struct.pack("<I", 3)) == 1
    file = tmp_path / "tiny.gguf"
    padding = bytes(64 * 64 * 4)  # for types larger than the one in the file
    file.write_bytes(content.replace(tensor + struct.pack("<I", 3), tensor + struct.pack("<I", number)) + padding)
    with pytest.raises(ModelError, match=rf"blk\.0\.attn_q\.weight has the type {name}\. The types Q4_K, .* are"):
        resolve(str(file))


@pytest.mark.parametrize("kind", ["adapter", "mmproj"])
def test_what_is_no_model_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ModelError, match=f"not a model: its general.type is '{kind}'"):
        _resolve(tmp_path, metadata={"general.type": kind})


def test_the_memory_that_a_file_takes_is_that_of_the_form_in_which_it_is_served(tmp_path: Path) -> None:
    sizes = {}
    for kind in ("Q8_0", "Q4_K", "Q2_K", "BF16"):
        file = tmp_path / f"{kind}.gguf"
        file.write_bytes(tiny_llama(width=256, layers=2, kind=kind))
        sizes[kind] = (file.stat().st_size, loaded_bytes(file))
    assert all(loaded == size * 3 // 2 for size, loaded in (sizes["Q8_0"], sizes["Q4_K"]))
    assert sizes["Q2_K"][1] == sizes["BF16"][1] == pytest.approx(sizes["Q8_0"][1], rel=0.1)  # both become int8
