"""The code of the pages that tell how to start: README, deployment and tutorials. Runs it against a fleet."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shared.runtime.processes import module_command
from shared.runtime.settings import variable
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "tutorials"
PAGES = {
    "README": ROOT / "README.md",
    "deployment": ROOT / "docs" / "deployment.md",
    **{page.stem: page for page in sorted(FOLDER.glob("*.md"))},
}
"""Their commands are run by a test, or say why not in a comment before them."""
WITH_DOCKER = ("README", "deployment", "second-host", "open-webui")
"""Pages with commands that need Docker, in the order in which tests/images/test_compose.py runs them."""
_BLOCK = re.compile(r"^(?:<!-- not run: ([^>]+) -->\n)?```(python|sh|toml|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STORE = "redis://:PASSWORD@first-host:6379/0"
"""The store's URL in tutorials."""
_COMMANDS = (
    "curl ",
    ".venv/bin/vinoqueue chat ",
    ".venv/bin/vinoqueue batch ",
    ".venv/bin/vinoqueue bench load ",
    ".venv/bin/vinoqueue model ",
    ".venv/bin/vinoqueue status",
    ".venv/bin/vinoqueue usage ",
    ".venv/bin/vinoqueue audit",
)
"""Prefixes of the shell commands that need nothing but the service."""


class Block(NamedTuple):
    """A code block, as it is written."""

    why_not: str
    """Why it is not run; empty if it is."""
    language: str
    code: str

    @property
    def with_docker(self) -> bool:
        """Whether Docker runs it: shell commands, and files for Compose."""
        return not self.why_not and (self.language == "yaml" or (self.language == "sh" and "docker " in self.code))

    @property
    def runnable(self) -> bool:
        """Whether it can be run: all Python can, and shell commands that only use the service."""
        if self.why_not:
            return False
        lines = re.sub(r"\\\n *|\n +", " ", self.code).splitlines()
        return self.language == "python" or all(line.startswith(_COMMANDS) for line in lines)


def all_blocks(name: str) -> Iterator[Block]:
    """Yield the code blocks of the page ``name``."""
    text = PAGES[name].read_text(encoding="utf-8")
    yield from (Block(*found) for found in _BLOCK.findall(text))


def blocks(name: str) -> Iterator[Block]:
    """Yield the code blocks of the page ``name`` that can be run."""
    yield from (block for block in all_blocks(name) if block.runnable)


def run(block: Block, fleet: Fleet, folder: Path) -> str:
    """Run a block in ``folder``; return what it prints. Fails if it fails."""
    url = f"http://127.0.0.1:{fleet.port}"
    code = block.code.replace("http://127.0.0.1:8000", url).replace(STORE, fleet.url)
    vinoqueue = " ".join(module_command("cli.main"))
    code = code.replace(".venv/bin/vinoqueue", vinoqueue)
    command = [sys.executable, "-c", code] if block.language == "python" else ["sh", "-ec", code]
    environment = {**os.environ, "OPENAI_BASE_URL": f"{url}/v1", "PYTHONPATH": str(ROOT)}
    environment[variable("redis_url")] = fleet.url
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{block.code}\n{done.stdout}\n{done.stderr}"
    return done.stdout
