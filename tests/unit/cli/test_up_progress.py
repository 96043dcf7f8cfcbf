"""What ``vinoqueue up`` says of devices."""

import msgspec
import pytest

from cli.up.progress import StartProgress
from shared.protocol.registry import WorkerInfo

WORKER = WorkerInfo(
    id="w", host="h", pid=1, model="m", status="serving", engine="batched", device="CPU", fingerprint="", started=0.0,
    slots=1,
)  # fmt: skip


def test_devices_are_named_once_with_the_way_to_another(capsys: pytest.CaptureFixture[str]) -> None:
    worker = msgspec.structs.replace(WORKER, devices=("CPU", "GPU.0", "NPU"))
    with StartProgress() as progress:
        progress.devices(WORKER)
        progress.devices(worker)
        progress.devices(worker)
    assert capsys.readouterr().out == (
        "Devices: CPU, GPU.0, NPU. The model runs on CPU; to use another: --device GPU.0\n"
    )


def test_a_single_device_is_not_worth_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with StartProgress() as progress:
        progress.devices(msgspec.structs.replace(WORKER, devices=("CPU",)))
    assert capsys.readouterr().out == ""
