"""Where the memory of models is: on the host, or on a discrete GPU."""

import json
import logging
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shared.runtime.processes import module_command
from worker.model.devices import device_kind

logger = logging.getLogger(__name__)

HOST = "host"

Memory = Mapping[str, int]
"""Bytes by place: :data:`HOST`, or a discrete GPU such as ``GPU.0``."""

_DRIVERS = (Path("/dev/dri"), Path("/dev/dxg"))
"""Where Linux has GPUs, and where WSL has them."""
_QUERY_SECONDS = 60


def place(device: str, capacity: Memory) -> str:
    """Return where a model on the OpenVINO ``device`` has its weights: a GPU of ``capacity``, otherwise the host.

    An integrated GPU shares the host's memory. ``GPU`` is ``GPU.0``; a tile such as ``GPU.0.1`` has that of its GPU.
    """
    kind, number, *_ = [*device.split("."), "0"]
    name = f"{kind}.{number}"
    return name if kind == "GPU" and name in capacity else HOST


def remaining(capacity: Memory, taken: Iterable[Memory]) -> Counter[str]:
    """Return what is left of ``capacity``; negative where more is taken."""
    left = Counter(capacity)
    for memory in taken:
        left.subtract(memory)
    return left


def fits(memory: Memory, free: Memory) -> bool:
    """Return whether ``free`` has room for ``memory`` at each of its places."""
    return all(size <= free.get(where, 0) for where, size in memory.items())


def gpu_memory() -> dict[str, int]:
    """Return the memory of each discrete GPU in bytes; empty if OpenVINO finds none, or cannot be asked.

    A subprocess asks, because a driver may crash, and because OpenVINO would stay in the node's memory.
    """
    if not any(driver.exists() for driver in _DRIVERS):
        return {}
    try:
        ran = subprocess.run(module_command(__name__), capture_output=True, timeout=_QUERY_SECONDS, check=True)
        return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        logger.warning("the memory of GPUs is unknown, and counts as the host's (--device-memory): %s", error)
        return {}


def discrete(core: Any) -> dict[str, int]:
    """Return the memory of each discrete GPU of an OpenVINO ``core`` in bytes.

    Source of the properties: OpenVINO's ``ov::device::type`` and ``ov::intel_gpu::device_total_mem_size``.
    """
    gpus = [name for name in core.available_devices if device_kind(name) == "GPU"]
    found = {
        name: int(core.get_property(name, "GPU_DEVICE_TOTAL_MEM_SIZE")) for name in gpus if _is_discrete(core, name)
    }
    return {name if "." in name else f"{name}.0": size for name, size in found.items()}


def _is_discrete(core: Any, name: str) -> bool:
    return "discrete" in str(core.get_property(name, "DEVICE_TYPE")).lower()


if __name__ == "__main__":
    import openvino

    print(json.dumps(discrete(openvino.Core())))
