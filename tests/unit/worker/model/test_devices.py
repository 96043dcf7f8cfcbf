"""Which kinds a device is of."""

from pathlib import Path

import pytest

from shared.runtime.settings import EngineSettings
from worker.engine.backends import computes_on_cpus
from worker.engine.protocol import EngineLoadError
from worker.model import devices
from worker.model.devices import device_kinds, has_amx, is_missing
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.options import OpenVINOOptions

_BOTH = "flags\t\t: fpu avx512_bf16 avx512_vnni amx_bf16 amx_tile\n"
_AVX512 = "flags\t\t: fpu avx512_bf16 avx512_vnni\n"
_NEITHER = "flags\t\t: fpu avx512f avx512_vnni\n"
_ARM = "Features\t: fp asimd bf16\n"


@pytest.mark.parametrize(
    ("processors", "kinds"),
    [
        (_AVX512, ("CPU", "CPU avx512_bf16")),
        (_BOTH, ("CPU",)),
        (_NEITHER, ("CPU",)),
        (_ARM, ("CPU",)),
        (None, ("CPU",)),
    ],
    ids=["avx512", "amx", "no bf16", "another family", "no Linux"],
)
def test_a_cpu_with_bf16_but_no_amx_is_a_kind_of_its_own(
    processors: str | None, kinds: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if processors is not None:
        file.write_text(f"processor\t: 0\nmodel name\t: any\n{processors}\nprocessor\t: 1\n{processors}")
    monkeypatch.setattr(devices, "_PROCESSORS", file)
    assert device_kinds("CPU") == kinds
    assert device_kinds("GPU.1") == ("GPU",)
    assert has_amx() == (processors is _BOTH)


@pytest.mark.parametrize(
    ("device", "available", "missing"),
    [
        ("CPU", ["CPU"], False),
        ("GPU", ["CPU"], True),
        ("GPU", ["CPU", "GPU"], False),
        ("GPU.0", ["CPU", "GPU"], False),
        ("GPU.1", ["CPU", "GPU"], True),
        ("GPU", ["CPU", "GPU.0", "GPU.1"], False),
        ("GPU.1", ["CPU", "GPU.0", "GPU.1"], False),
        ("GPU.2", ["CPU", "GPU.0", "GPU.1"], True),
        ("AUTO", ["CPU"], False),
        ("AUTO:GPU,CPU", ["CPU"], False),
        ("HETERO:GPU.1,CPU", ["CPU"], False),
    ],
)
def test_a_device_is_missing_if_openvino_finds_none_of_the_name(
    device: str, available: list[str], missing: bool
) -> None:
    assert is_missing(device, available) is missing


def test_a_worker_without_its_device_names_those_that_exist(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    options = OpenVINOOptions.from_settings(EngineSettings(device="gpu.7"), path=str(model), context_length=64)
    with pytest.raises(EngineLoadError, match=r"no device GPU\.7 here: OpenVINO finds .*CPU.*docs/deployment\.md"):
        OpenVINOEngine(options, lambda stage: None)


def test_a_device_may_be_written_in_lower_case() -> None:
    assert EngineSettings(device="gpu.1").device == "GPU.1"
    assert computes_on_cpus(EngineSettings(device="cpu"))
