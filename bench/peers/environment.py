"""Virtual environments for what the service is measured against, one for each, in the user's cache."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from shared.runtime.processes import module_command
from worker.model.cache import user_cache

_STAMP = ".complete"
_LAST_LINES = 6


class Unavailable(Exception):
    """A peer can't be installed or run on this machine; the human-readable message gives the reason."""


@dataclass(frozen=True)
class Environment:
    """What a peer needs from the package index, all pinned.

    ``tools`` are installed first: what ``packages`` are built with. Of ``packages``, nothing is installed but what is
    listed, so dependencies are listed too; a hash holds for the one archive that was measured. ``variables`` are set
    while they are built.
    """

    name: str
    packages: tuple[str, ...]
    tools: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return user_cache() / "bench" / self.name

    def program(self, name: str) -> Path:
        """The path of one of its commands."""
        return self.folder / "bin" / name

    def prepare(self) -> None:
        """Install what is missing, which takes minutes where something must be compiled.

        Raises :class:`Unavailable` when that fails.
        """
        stamp = self.folder / _STAMP
        wanted = "\n".join(
            (*self.tools, *self.packages, *(f"{name}={value}" for name, value in self.variables.items()))
        )
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"installing {self.name} into {self.folder}", flush=True)
        self._run(module_command("venv", "--clear", str(self.folder)))
        if self.tools:
            self._pip("tools", self.tools)
        # A wheel in the cache may have been built with other variables.
        self._pip("packages", self.packages, "--no-deps", "--no-build-isolation", "--no-cache-dir")
        stamp.write_text(wanted)

    def _pip(self, name: str, requirements: tuple[str, ...], *options: str) -> None:
        listed = self.folder / f"{name}.txt"
        listed.write_text("\n".join(requirements))
        pip = [str(self.program("python")), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        self._run([*pip, *options, "--requirement", str(listed)])

    def _run(self, command: list[str]) -> None:
        # The build's own programs come first, so that it finds its cmake.
        path = f"{self.folder / 'bin'}:{os.environ.get('PATH', '')}"
        run(command, "it can't be installed", {**os.environ, **self.variables, "PATH": path})


def run(command: list[str], failing: str, environment: dict[str, str] | None = None) -> str:
    """Run ``command`` in silence and return what it printed.

    Raises :class:`Unavailable` with ``failing`` and its last words when it fails.
    """
    done = subprocess.run(
        command, check=False, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        words = " / ".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise Unavailable(f"{failing}: {words or f'exit code {done.returncode}'}")
    return done.stdout.strip()
