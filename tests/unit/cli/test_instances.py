"""The directory of ``vinoqueue up`` for sockets: private, or not used; without the folders of killed instances."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.base.instances import Instance, InstanceFolder, running


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
        name = f"vinoqueue-{os.geteuid()}"
        yield temporary / name, runtime / name


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_instances_are_found_while_they_listen(places: tuple[Path, Path]) -> None:
    first, second = InstanceFolder(8000), InstanceFolder(9000)
    assert (first.path.parent, first.path.parent.stat().st_mode & 0o777) == (places[0], 0o700)
    assert running() == []
    with listen(first.socket), listen(second.socket):
        assert running() == [Instance("8000", f"unix://{first.socket}"), Instance("9000", f"unix://{second.socket}")]
    assert running() == [], "the files are still there"
    first.remove()
    second.remove()
    assert not places[0].exists()


def test_the_next_instance_removes_the_folders_of_killed_ones_only(places: tuple[Path, Path]) -> None:
    starting, listening, locked = places[0] / "1-new", places[0] / "2-older-version", InstanceFolder(3)
    killed = places[0] / "4-killed"
    for folder in (starting, listening, killed):
        folder.mkdir()
    (killed / "file").touch()
    with listen(listening / "valkey.sock"):
        for folder in (listening, locked.path, killed):
            os.utime(folder, (0, 0))
        made = InstanceFolder(5)
    assert set(places[0].iterdir()) == {starting, listening, locked.path, made.path}
    locked.remove()
    made.remove()


def test_the_path_of_a_socket_is_never_too_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 95)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    made = InstanceFolder(65535)
    with listen(made.socket):
        assert Instance("65535", f"unix://{made.socket}") in running()
    made.remove()


def test_a_directory_that_others_may_write_to_is_not_used(places: tuple[Path, Path]) -> None:
    planted = places[0] / "8000-planted"
    planted.mkdir(parents=True)
    places[0].chmod(0o777)
    with listen(planted / "valkey.sock"):
        assert running() == []
        assert InstanceFolder(8000).path.parent == places[1]


def test_a_link_to_another_directory_is_not_used(places: tuple[Path, Path], tmp_path: Path) -> None:
    places[0].symlink_to(tmp_path)
    assert InstanceFolder(8000).path.parent == places[1]


def test_without_any_private_directory_it_does_not_start(places: tuple[Path, Path]) -> None:
    for place in places:
        place.mkdir()
        place.chmod(0o770)
    with pytest.raises(click.ClickException, match="No private directory"):
        InstanceFolder(8000)
