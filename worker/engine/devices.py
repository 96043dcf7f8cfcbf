"""OpenVINO's names of devices, and kinds of processors that are best served differently."""

import re
from collections.abc import Collection
from pathlib import Path

from shared.runtime.settings import EngineSettings

AVX512_BF16 = "CPU avx512_bf16"
"""A CPU that computes in bf16 by AVX-512, having no AMX: its bf16 takes no longer than its f32, whatever the batch."""

_VIRTUAL = frozenset({"AUTO", "BATCH", "HETERO", "MULTI"})
_FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)
_PROCESSORS = Path("/proc/cpuinfo")


def device_kind(device: str) -> str:
    """Return the kind of a device, of which a host may have several: ``GPU`` of ``GPU.1``."""
    return device.partition(".")[0]


def is_missing(device: str, available: Collection[str]) -> bool:
    """Whether OpenVINO, which finds the devices ``available``, has no ``device``.

    Virtual devices (``AUTO:GPU,CPU``) choose for themselves and are never missing. The only device of a kind is listed
    without a number, and is number 0, too.
    """
    kind = device_kind(device)
    if kind.partition(":")[0] in _VIRTUAL:
        return False
    names = {*available, *(device_kind(name) for name in available), *(f"{name}.0" for name in available)}
    return device not in names


def computes_on_cpus(settings: EngineSettings) -> bool:
    """Whether a model is computed by the host's own CPUs."""
    return settings.engine == "openvino" and device_kind(settings.device) == "CPU"


def device_kinds(device: str) -> tuple[str, ...]:
    """Return all kinds that a device is of, the most particular one last."""
    kind = device_kind(device)
    return (kind, AVX512_BF16) if kind == "CPU" and _only_avx512_bf16() else (kind,)


def _only_avx512_bf16() -> bool:
    """Whether this host's processor is of the kind :data:`AVX512_BF16`; not where Linux does not tell (proc(5))."""
    try:
        flags = _FLAGS.search(_PROCESSORS.read_text())
    except OSError:
        return False
    names = flags[1].split() if flags else []
    return "avx512_bf16" in names and "amx_bf16" not in names
