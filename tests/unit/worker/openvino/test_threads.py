"""The number of threads of an engine: within the CPU quota, the affinity and the cores."""

import json
import math
from pathlib import Path

import pytest

from shared.runtime.settings import EngineSettings
from worker.engine.host import cores, cpu_quota
from worker.openvino import threads
from worker.openvino.options import OpenVINOOptions
from worker.openvino.threads import engine_threads


def groups(folder: Path, **quotas: str) -> Path:
    """The folder of control groups of the second version; ``quotas`` by group, the root's as ``root``."""
    for name, quota in quotas.items():
        group = folder / name.replace("__", "/") if name != "root" else folder
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpu.max").write_text(f"{quota}\n")
    return folder


def own(folder: Path, text: str) -> Path:
    (folder / "own").write_text(text)
    return folder / "own"


def test_a_containers_quota_counts(tmp_path: Path) -> None:
    root = own(tmp_path, "0::/\n")
    assert cpu_quota(groups(tmp_path, root="max 100000"), root) == math.inf
    assert cpu_quota(groups(tmp_path, root="150000 100000"), root) == 1.5


def test_the_least_quota_of_the_groups_around_it_counts(tmp_path: Path) -> None:
    service = own(tmp_path, "0::/system.slice/worker.service\n")
    quotas = {"system.slice": "200000 100000", "system.slice__worker.service": "300000 100000", "other": "100 100000"}
    assert cpu_quota(groups(tmp_path, **quotas), service) == 2


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "expected"), [("-1", math.inf), ("50000", 0.5)])
def test_a_quota_counts_in_the_kernels_first_form_too(tmp_path: Path, folder: str, quota: str, expected: float) -> None:
    pod = own(tmp_path, "4:memory:/other\n3:cpu,cpuacct:/kubepods/pod\n")
    group = tmp_path / folder / "kubepods" / "pod"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(tmp_path, pod) == expected


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "none") == math.inf


def test_hyperthreads_share_a_core(tmp_path: Path) -> None:
    for cpu in range(4):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    assert cores({0, 1, 2, 3}, tmp_path) == 2
    assert cores({0, 2}, tmp_path) == 1
    assert cores({7, 8}, tmp_path) == 2  # unknown ones


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(math.inf, 0), (8, 0), (4, 0), (3.9, 3), (1, 1), (0.5, 1)],
)
def test_there_are_no_more_threads_than_the_quota_and_the_cores_allow(
    quota: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(threads, "cores", lambda cpus: 4)
    found = engine_threads(options())
    assert found.properties == ({"INFERENCE_NUM_THREADS": expected, "ENABLE_CPU_PINNING": False} if expected else {})
    assert found.description.startswith(f", threads: {expected or 4} (")


def test_a_number_that_is_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cpu_quota", lambda: 1)
    monkeypatch.setattr(threads, "cores", lambda cpus: 4)
    found = engine_threads(options(plugin_config=json.dumps({"INFERENCE_NUM_THREADS": 3})))
    assert found == ({}, ", threads: 3 (--plugin-config)")
    assert engine_threads(options(device="GPU")) == ({}, "")


def options(**settings: str) -> OpenVINOOptions:
    return OpenVINOOptions.from_settings(EngineSettings(**settings), path="model", context_length=100)
