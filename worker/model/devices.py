"""OpenVINO device names, and device kinds with properties of their own."""

import re
from collections.abc import Collection
from pathlib import Path

AVX512_BF16 = "CPU avx512_bf16"
"""A CPU with AVX-512 bf16 but without AMX. Its bf16 is at least as fast as its f32, for any batch size."""

_VIRTUAL = frozenset({"AUTO", "BATCH", "HETERO", "MULTI"})
_FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)
_PROCESSORS = Path("/proc/cpuinfo")


def device_kind(device: str) -> str:
    """Return the kind of a device: ``GPU`` for ``GPU.1``."""
    return device.partition(".")[0]


def is_missing(device: str, available: Collection[str]) -> bool:
    """Return whether ``device`` is not among the ``available`` devices of OpenVINO.

    Virtual devices (``AUTO:GPU,CPU``) are never missing. The only device of a kind is listed without a number; it is
    also number 0.
    """
    kind = device_kind(device)
    if kind.partition(":")[0] in _VIRTUAL:
        return False
    names = {*available, *(device_kind(name) for name in available), *(f"{name}.0" for name in available)}
    return device not in names


def device_kinds(device: str) -> tuple[str, ...]:
    """Return all kinds of a device, the most specific one last."""
    kind = device_kind(device)
    return (kind, AVX512_BF16) if kind == "CPU" and _only_avx512_bf16() else (kind,)


def has_amx() -> bool:
    """Return whether this host's CPU has AMX for bf16, which OpenVINO then computes in by default."""
    return "amx_bf16" in _cpu_flags()


def _only_avx512_bf16() -> bool:
    """Return whether this host's CPU is :data:`AVX512_BF16`."""
    return "avx512_bf16" in _cpu_flags() and not has_amx()


def _cpu_flags() -> Collection[str]:
    """Return the flags of this host's CPU in ``/proc/cpuinfo`` (proc(5)); none without that file."""
    try:
        flags = _FLAGS.search(_PROCESSORS.read_text())
    except OSError:
        return ()
    return flags[1].split() if flags else ()
