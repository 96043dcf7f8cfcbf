"""The memory of discrete GPUs. OpenVINO's properties are stand-ins: no test has a GPU."""

from pathlib import Path
from typing import Any

import pytest
from openvino.properties.device import Type
from pydantic import ValidationError

from shared.runtime.settings import NodeSettings, WorkerSettings
from worker.node.catalogue import CatalogueEntry
from worker.node.devices import HOST, discrete, place
from worker.node.memory import Measurement, needed

GB = 2**30
MEASURED = Measurement(memory=GB, load_seconds=1.0)


class Core:
    """An OpenVINO core with the ``gpus``: the type and the size of each by its name."""

    def __init__(self, gpus: dict[str, tuple[Type, int]]) -> None:
        self._gpus = gpus
        self.available_devices = ["CPU", *gpus, "NPU"]

    def get_property(self, device: str, name: str) -> Any:
        return dict(zip(("DEVICE_TYPE", "GPU_DEVICE_TOTAL_MEM_SIZE"), self._gpus[device], strict=True))[name]


def test_each_discrete_gpu_has_memory_of_its_own() -> None:
    assert discrete(Core({"GPU": (Type.DISCRETE, 16 * GB)})) == {"GPU.0": 16 * GB}
    assert discrete(Core({"GPU.0": (Type.INTEGRATED, 32 * GB), "GPU.1": (Type.DISCRETE, GB)})) == {"GPU.1": GB}
    assert discrete(Core({})) == {}


@pytest.mark.parametrize(
    ("device", "where"),
    [("GPU", "GPU.0"), ("GPU.0", "GPU.0"), ("GPU.0.1", "GPU.0"), ("GPU.1", HOST), ("CPU", HOST), ("AUTO:GPU", HOST)],
)
def test_a_device_without_memory_of_its_own_takes_the_hosts(device: str, where: str) -> None:
    assert place(device, {HOST: 1, "GPU.0": 1}) == where


def test_a_model_on_a_gpu_takes_its_weights_there_and_its_processes_from_the_host(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(2000))
    (draft := tmp_path / "draft").mkdir()
    (draft / "openvino_model.bin").write_bytes(bytes(200))

    def takes(device: str, measured: Measurement | None = None, memory: int = 0, draft: str = "") -> dict[str, int]:
        entry = CatalogueEntry(name="a", source=str(file), memory=memory)
        settings = WorkerSettings(device=device, draft_model=draft, cache_size=2)
        return dict(needed(entry, measured, settings, place(device, {HOST: 1, "GPU.1": 1})))

    processes = takes("GPU.1")[HOST]
    assert takes("GPU.1") == {HOST: processes, "GPU.1": 3000 + 2 * GB}
    assert takes("GPU.1", MEASURED) == {HOST: GB, "GPU.1": 3000 + 2 * GB}
    assert takes("GPU.1", MEASURED, memory=7) == {HOST: GB, "GPU.1": 7}
    assert takes("CPU") == takes("GPU.0") == {HOST: processes + 3000 + 2 * GB}
    assert takes("CPU", MEASURED) == {HOST: 3 * GB}
    assert takes("GPU.0", MEASURED) == {HOST: 3 * GB + 3000}, "an integrated GPU's memory is not the processes'"
    assert takes("GPU.0", MEASURED, memory=7) == {HOST: 7}
    assert takes("CPU", draft=str(draft)) == {HOST: processes + 3300 + 2 * GB}
    assert takes("CPU", MEASURED, draft=str(draft)) == {HOST: 3 * GB}, "the processes have the draft model's weights"
    assert takes("GPU.1", MEASURED, draft=str(draft)) == {HOST: GB, "GPU.1": 3300 + 2 * GB}


def test_the_memory_of_a_gpu_is_set_by_its_name() -> None:
    assert NodeSettings(device_memory="GPU=16GB, GPU.1=8GiB").device_budgets == {"GPU.0": 16 * 10**9, "GPU.1": 8 * GB}
    for wrong in ("16GB", "CPU=1GB", "GPU.0=much", "GPU.0=16"):
        with pytest.raises(ValidationError, match="device_memory"):
            NodeSettings(device_memory=wrong)
