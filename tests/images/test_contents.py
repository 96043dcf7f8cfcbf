"""The content of each image serves as a user that no machine knows, without Docker."""

import json
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.support.dockerfile import context, requirements, variables
from tests.support.fleet import fleet
from tests.support.images import Image, can_mount, sources, wheel
from tests.support.paths import ROOT
from tests.support.requirements import pins
from worker.model.cache import user_cache

USERS = {"api": "10001:10001", "worker": "23456:0"}
"""The images' own user, and one of a platform that chooses the user and group 0."""

HELP = """
import sys
import click
from cli.main import main

def walk(command, names, parent):
    context = click.Context(command, info_name=names[-1], parent=parent)
    print(" ".join(names), len(command.get_help(context)))
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        walk(command.get_command(context, name), [*names, name], context)

walk(main, ["vinoqueue"], None)
"""

DISTRIBUTIONS = (
    "import importlib.metadata as m; print(*sorted({d.metadata['Name'].lower() for d in m.distributions()}))"
)


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, Image]]:
    """Both images, in a folder that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix="vinoqueue-images-"))
    folder.chmod(0o755)
    try:
        (source,) = {sources(name) for name in USERS}
        built = wheel(folder / "built", source)
        yield {name: Image(name, folder / name, user, built) for name, user in USERS.items()}
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("user", [int(user.partition(":")[0]) for user in USERS.values()])
def test_no_machine_knows_the_users(user: int) -> None:
    with pytest.raises(KeyError):
        pwd.getpwuid(user)


@pytest.mark.parametrize("image", USERS)
def test_an_image_has_its_packages_and_no_others(images: dict[str, Image], image: str) -> None:
    expected = {name for file in requirements(image) for name in pins(Path(file).stem)} | {"vinoqueue"}
    found = images[image].run("python", "-c", DISTRIBUTIONS).split()
    assert {name.replace("_", "-").replace(".", "-") for name in found} == expected


@pytest.mark.parametrize("image", USERS)
def test_docker_gets_what_is_copied(image: str) -> None:
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [source for source in context(image) if f"!{source}" not in kept and "requirements/" not in source] == []


@pytest.mark.parametrize("image", USERS)
def test_every_command_has_help(images: dict[str, Image], image: str) -> None:
    lines = images[image].run("python", "-c", HELP).splitlines()
    assert {"vinoqueue", "vinoqueue worker drain", "vinoqueue key create"} <= {
        line.rpartition(" ")[0] for line in lines
    }
    assert images[image].run("vinoqueue", "--help").startswith("Usage: vinoqueue")


def test_the_images_serve(images: dict[str, Image], tmp_path: Path) -> None:
    # The default model's int8 weights are made once for all tests.
    cache = images["worker"].volumes["/cache"] / "vinoqueue"
    cache.mkdir(parents=True, exist_ok=True)
    for entry in (user_cache() / "models").glob("SmolLM2*.Q4_1-[it]*/"):
        shutil.copytree(entry, cache / "models" / entry.name)
    if can_mount():
        subprocess.run(["chown", "-R", USERS["worker"], cache], check=True)
    chosen = ["worker"]

    def launch(arguments: Sequence[str], output: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        given = {name: value for name, value in environment.items() if name.startswith("VINOQUEUE_")}
        kept = given.keys() - variables(chosen[0])
        return images[chosen[0]].start(["vinoqueue", *arguments], output, {name: given[name] for name in kept})

    with fleet(tmp_path, launch=launch) as running:
        worker = running.start("worker")
        chosen[0] = "api"
        api = running.api()
        running.until(lambda: worker.popen.poll() is not None or running.workers("serving"), "the worker to serve")
        chat = {"messages": [{"role": "user", "content": "Name the capital of France."}], "temperature": 0}
        body = json.dumps(chat | {"model": "SmolLM2-135M-Instruct"})
        status, _, answer = running.request("POST", "/v1/chat/completions", body)
        assert (status, b"Paris" in answer) == (200, True), answer
        (serving,) = running.workers()
        for image, number in USERS.items():
            chosen[0] = image
            for command in (["key", "create", "--name", image], ["team", "create", "--name", image], ["audit"]):
                code, printed = running.command(*command)
                assert code == 0, printed
            assert "team.created" in printed
            if can_mount():
                assert f"cli uid {number.partition(':')[0]}@" in printed
            for change in ("drain", "resume"):
                code, printed = running.command("worker", change, serving["id"])
                assert (code, serving["id"] in printed) == (0, True), printed
        assert [process.stop() for process in (api, worker)] == [0, 0], running.logs()


def test_how_the_images_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Says what this machine leaves out: only root can give a process another root folder and another user."""
    if not can_mount():
        with capsys.disabled():
            print("\ntests/images: without root, images are run as this user and in this machine's root folder")
