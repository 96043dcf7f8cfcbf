"""The threads of an engine on CPUs."""

from typing import NamedTuple

from shared.runtime.placement import own_cpus
from shared.runtime.plugin_config import PluginValue
from worker.engine.host import cores, cpu_quota
from worker.model.devices import device_kind
from worker.openvino.options import OpenVINOOptions

_THREADS = "INFERENCE_NUM_THREADS"


class Threads(NamedTuple):
    """Properties of the device, and what to log of them."""

    properties: dict[str, PluginValue]
    description: str


def engine_threads(options: OpenVINOOptions) -> Threads:
    """Return the threads of an engine with ``options`` in this process.

    OpenVINO has one for each core that the affinity allows, and does not know quotas. Threads beyond the quota use it
    up while they wait for each other. They are not pinned to CPUs: other containers of the host would pin theirs to the
    same ones.
    """
    if device_kind(options.device) != "CPU":
        return Threads({}, "")
    if _THREADS in options.plugin_config:
        return Threads({}, f", threads: {options.plugin_config[_THREADS]} (--plugin-config)")
    number, quota = cores(own_cpus()), cpu_quota()
    if quota >= number:
        return Threads({}, f", threads: {number} (one per core)")
    threads = max(1, int(quota))
    return Threads(
        {_THREADS: threads, "ENABLE_CPU_PINNING": False},
        f", threads: {threads} (CPU quota {quota:g}, {number} cores)",
    )
