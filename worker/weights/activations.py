"""CPU properties for dynamic quantisation: activations are quantised to int8 at run time, to use int8 instructions.

OpenVINO's CPU device does this only with f32 inference precision, and only if the activation group size divides the
weight group size. On processors with AMX the default would be bf16, which has 0.5 to 0.7 of the speed for few rows.
Processors with bf16 but without AMX get bf16: it is as fast for few rows there, and prefill takes 0.7 to 0.9 of the
time (docs/performance.md).
"""

import math
from collections.abc import Iterable

from worker.model.devices import AVX512_BF16
from worker.model.files import Properties

_LEAST, _MOST, _STEP = 32, 128, 16
"""Range of activation group sizes: smaller groups are slower, larger ones less accurate. Kernels need a step of 16."""


def fast_properties(lengths: Iterable[int]) -> Properties:
    """Return the properties for a model whose weight groups, including whole rows, have ``lengths``.

    They are empty if no activation group size divides all of them.
    """
    common = math.gcd(*lengths)
    group = max((size for size in range(_LEAST, _MOST + 1, _STEP) if common and common % size == 0), default=0)
    if not group:
        return {}
    return {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": group},
        AVX512_BF16: {"INFERENCE_PRECISION_HINT": "bf16"},
    }
