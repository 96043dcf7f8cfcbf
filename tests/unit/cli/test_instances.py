"""The runtime directory of ``vinoqueue up``: private, or not used."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.base.instances import Instance, make_folder, remove_folder, running, socket_in


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The two directories that are looked at, in order; neither exists yet.

    They are not in ``tmp_path``, whose name may be too long for a socket; but it must be made before the directory for
    temporary files changes.
    """
    with tempfile.TemporaryDirectory(prefix="vq-") as base:
        runtime, temporary = Path(base, "run"), Path(base, "tmp")
        runtime.mkdir()
        temporary.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        yield runtime / "vinoqueue", temporary / f"vinoqueue-{os.geteuid()}"


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_instances_are_found_while_they_listen(places: tuple[Path, Path]) -> None:
    first, second = make_folder(8000), make_folder(9000)
    assert (first.parent, first.parent.stat().st_mode & 0o777) == (places[0], 0o700)
    assert running() == []
    with listen(socket_in(first)), listen(socket_in(second)):
        assert running() == [
            Instance("8000", f"unix://{socket_in(first)}"),
            Instance("9000", f"unix://{socket_in(second)}"),
        ]
    assert running() == [], "the files are still there"
    for folder in (first, second):
        remove_folder(folder)
    assert not places[0].exists()


def test_a_directory_that_others_may_write_to_is_not_used(places: tuple[Path, Path]) -> None:
    planted = places[0] / "8000-planted"
    planted.mkdir(parents=True)
    places[0].chmod(0o777)
    with listen(socket_in(planted)):
        assert running() == []
        assert make_folder(8000).parent == places[1]


def test_a_link_to_another_directory_is_not_used(places: tuple[Path, Path], tmp_path: Path) -> None:
    places[0].symlink_to(tmp_path)
    assert make_folder(8000).parent == places[1]


def test_without_any_private_directory_it_does_not_start(places: tuple[Path, Path]) -> None:
    for place in places:
        place.mkdir()
        place.chmod(0o770)
    with pytest.raises(click.ClickException, match="No private directory"):
        make_folder(8000)
