"""Options of the engine process, from settings and the machine."""

from pathlib import Path

import pytest

from shared.runtime.settings import WorkerSettings
from worker.engine.host import free_memory, memory_limit
from worker.engine.options import default_cache_size, fitting_sequences
from worker.openvino.options import OpenVINOOptions

GB = 2**30


def options(**settings: object) -> OpenVINOOptions:
    return OpenVINOOptions.from_settings(WorkerSettings(**settings), path="model", context_length=100)


def machine(folder: Path, *, free: int, limit: str = "max", used: int = 0) -> tuple[Path, Path]:
    """The kernel's files about memory; ``free`` and ``used`` are in bytes."""
    meminfo = folder / "meminfo"
    meminfo.write_text(f"MemTotal: {64 * GB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {free // 1024} kB\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    return meminfo, folder


def test_free_memory_is_the_hosts(tmp_path: Path) -> None:
    assert free_memory(*machine(tmp_path, free=10 * GB)) == 10 * GB
    assert memory_limit(tmp_path) == 0


def test_a_containers_limit_counts_too(tmp_path: Path) -> None:
    assert free_memory(*machine(tmp_path, free=10 * GB, limit=str(4 * GB), used=GB)) == 3 * GB
    assert free_memory(*machine(tmp_path, free=2 * GB, limit=str(4 * GB), used=GB)) == 2 * GB
    assert free_memory(*machine(tmp_path, free=2 * GB, limit=str(GB), used=2 * GB)) == 0
    assert memory_limit(tmp_path) == GB


def test_the_limit_of_a_service_counts_and_those_of_the_groups_around_it(tmp_path: Path) -> None:
    """systemd's ``MemoryMax`` is the limit of a control group below the root's."""
    meminfo, root = machine(tmp_path, free=10 * GB)
    own = tmp_path / "cgroup"
    own.write_text("0::/system.slice/worker.service\n")
    for name, limit in (("system.slice", 6 * GB), ("system.slice/worker.service", 4 * GB)):
        (root / name).mkdir()
        machine(root / name, free=0, limit=str(limit), used=GB)
    assert free_memory(meminfo, root, own) == 3 * GB
    (root / "system.slice" / "memory.max").write_text(f"{2 * GB}\n")
    assert free_memory(meminfo, root, own) == GB


@pytest.mark.parametrize(("limit", "free"), [(4 * GB, 3), (2**63 - 4096, 10)])
def test_a_containers_limit_counts_in_the_kernels_first_form_too(tmp_path: Path, limit: int, free: int) -> None:
    meminfo, folder = machine(tmp_path, free=10 * GB)
    for name in ("memory.max", "memory.current"):
        (folder / name).unlink()
    (folder / "memory").mkdir()
    (folder / "memory" / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory" / "memory.usage_in_bytes").write_text(f"{GB}\n")
    assert free_memory(meminfo, folder) == free * GB
    assert memory_limit(folder) == (limit if free == 3 else 0)
    own = tmp_path / "cgroup"
    own.write_text("3:cpu:/other\n2:memory:/docker/id\n")  # its folder is seen as the root
    assert free_memory(meminfo, folder, own) == free * GB


def test_a_system_without_information_has_none(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "meminfo", tmp_path) == 0


@pytest.mark.parametrize(("free", "size"), [(0, 1), (3, 1), (8, 2), (24, 6), (63, 15), (1000, 16)])
def test_a_quarter_of_the_free_memory_is_for_the_cache(monkeypatch: pytest.MonkeyPatch, free: int, size: int) -> None:
    monkeypatch.setattr("worker.engine.options.free_memory", lambda: free * GB)
    assert default_cache_size("CPU") == size
    assert options(cache_size="auto").cache_size == size


@pytest.mark.parametrize("device", ["GPU", "GPU.1", "NPU", "AUTO", "AUTO:GPU,CPU"])
def test_other_devices_grow_their_own_caches(device: str) -> None:
    assert default_cache_size(device) == 0


@pytest.mark.parametrize("size", [0, 3])
def test_a_size_that_was_asked_for_is_kept(size: int) -> None:
    assert options(cache_size=size).cache_size == size


def test_device_properties_keep_their_types() -> None:
    config = '{"INFERENCE_NUM_THREADS": 4, "ENABLE_CPU_PINNING": false, "KV_CACHE_PRECISION": "f16"}'
    properties = options(plugin_config=config).plugin_config
    assert properties == {"INFERENCE_NUM_THREADS": 4, "ENABLE_CPU_PINNING": False, "KV_CACHE_PRECISION": "f16"}
    assert [type(value) for value in properties.values()] == [int, bool, str]
    assert options().plugin_config == {}


def test_with_a_draft_model_few_sequences_share_a_cache_that_grows() -> None:
    assert options(draft_model="draft", cache_size=3).cache_size == 0
    assert (options(draft_model="draft").max_batch, options(draft_model="draft").slots(100_000)) == (4, 4)
    assert options(draft_model="draft", max_batch=9).slots(100_000) == 9


@pytest.mark.parametrize(
    ("device", "cache_tokens", "sequences"),
    [
        ("CPU", 100_000, 32),
        ("CPU", 32 * 512, 32),
        ("CPU", 32 * 512 - 1, 31),
        ("CPU", 600, 4),
        ("GPU", 100_000, 64),
        ("GPU.1", 20_000, 39),
        ("AUTO", 100_000, 32),
    ],
)
def test_a_batch_has_as_many_sequences_as_the_cache_has_room_for(
    device: str, cache_tokens: int, sequences: int
) -> None:
    assert fitting_sequences(device, cache_tokens) == sequences
    assert options(device=device).slots(cache_tokens) == sequences
    assert options(device=device).max_batch >= sequences


def test_a_batch_that_is_set_is_not_fitted() -> None:
    assert options(max_batch=100).max_batch == options(max_batch=100).slots(600) == 100
    assert options(max_batch=1).slots(100_000) == 1
