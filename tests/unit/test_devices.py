"""Which kinds a device is of."""

from pathlib import Path

import pytest

from worker.engine import devices
from worker.engine.devices import device_kinds

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
