"""How a CPU multiplies compressed weights fastest: by its int8 instructions, with activations made int8 on the way.

OpenVINO calls that dynamic quantisation. Its CPU device does it only while it computes in f32, and only when the group
of activations that share a scale is not longer than the group of weights that do, and divides it. On processors with
AMX it would take bf16 otherwise, which is 0.5 to 0.7 of the speed for few rows. Those with bf16 but no AMX get bf16: it
is as fast for few rows there, and reads prompts in 0.7 to 0.9 of the time (docs/performance.md).
"""

import math
from collections.abc import Iterable

from worker.engine.devices import AVX512_BF16
from worker.engine.model_files import Properties

_LEAST, _MOST, _STEP = 32, 128, 16
"""Activations that share a scale: fewer take time, and more cost quality; the kernels want a multiple of 16."""


def fast_properties(lengths: Iterable[int]) -> Properties:
    """The properties for a model whose weights share scales in groups of ``lengths``, whole rows among them; none if
    no group of activations suits them all."""
    common = math.gcd(*lengths)
    group = max((size for size in range(_LEAST, _MOST + 1, _STEP) if common and common % size == 0), default=0)
    if not group:
        return {}
    return {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": group},
        AVX512_BF16: {"INFERENCE_PRECISION_HINT": "bf16"},
    }
