"""Reads deploy/docker/Dockerfile: what an image is made of."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.support.paths import ROOT

FILE = ROOT / "deploy" / "docker" / "Dockerfile"


class Instruction(NamedTuple):
    """A keyword, such as COPY, and the text after it."""

    keyword: str
    text: str


@cache
def _stages() -> dict[str, list[Instruction]]:
    """The instructions of each stage by its name, beginning with its FROM."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", "")
    found: dict[str, list[Instruction]] = {"": []}
    for line in filter(None, text.splitlines()):
        instruction = Instruction(*line.split(maxsplit=1))
        if instruction.keyword == "FROM":
            found[instruction.text.split()[-1]] = []
        found[next(reversed(found))].append(instruction)
    return found


def instructions(stage: str, *, copied: bool) -> Iterator[Instruction]:
    """Yield the instructions of ``stage`` after those of the stage that it is made from, and, with ``copied``, after
    those of the stages that it copies from."""
    start, *own = _stages()[stage]
    parent = start.text.split()[0]
    sources = [source for one in own for source in re.findall(r"--from=(\S+)", one.text)] if copied else []
    for source in dict.fromkeys([parent, *sources]):
        if source in _stages():
            yield from instructions(source, copied=copied)
    yield from own


def variables(image: str) -> dict[str, str]:
    """The environment of ``image``, without what its base has."""
    found = [one.text for one in instructions(image, copied=False) if one.keyword == "ENV"]
    return dict(pair.split("=", 1) for text in found for pair in shlex.split(text))


def context(image: str) -> list[str]:
    """The files and folders that are copied from the repository into ``image``, or into what it is made from."""
    copies = [one.text.split() for one in instructions(image, copied=True) if one.keyword == "COPY"]
    return [source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]]


def requirements(image: str, **arguments: str) -> list[str]:
    """The requirements files that are installed into ``image``: its command is run with a pip that prints them.

    ``arguments`` are build arguments; the others have their defaults."""
    made = list(instructions(image, copied=True))
    (command,) = (one.text for one in made if one.keyword == "RUN" and one.text.startswith("for part in"))
    defaults = dict(shlex.split(one.text)[0].split("=", 1) for one in made if one.keyword == "ARG" and "=" in one.text)
    script = f'pip() {{ for last; do :; done; echo "$last"; }}; {command}'
    environment = {**os.environ, **defaults, **arguments}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()


def folders(image: str) -> list[list[str]]:
    """The commands that make the folders which ``image`` writes to."""
    made = [one.text for one in instructions(image, copied=False) if one.keyword == "RUN"]
    return [shlex.split(text) for text in made if text.startswith("install -d ")]
