"""Wheels without content."""

import zipfile
from pathlib import Path


def make_wheel(folder: Path, version: str, *requires: str, name: str) -> None:
    """Write a wheel without content into ``folder``."""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        info = f"{name}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Provides-Extra: toml"]
        archive.writestr(f"{info}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {r}" for r in requires), ""]))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
