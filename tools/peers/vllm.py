"""vLLM's tests of parsers, run as they are with our parsers behind the interface of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_OTHERS = ("stream", "structur", "grammar", "adjust", "regist", "True")
"""Words in the names of tests that are about something else. ``True`` is a parameter: with streaming."""


def replay(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the problem of each case, empty if there is none, by the tests' file."""
    tests = folder / "tests"
    options = f"-q -n 0 -p tools.peers.vllm_plugin -p no:cacheprovider --continue-on-collection-errors -c {os.devnull}"
    places = [
        f"--rootdir={folder}",
        f"--confcutdir={tests}/tool_parsers",
        f"--ignore={tests}/tool_parsers/test_utils.py",
    ]
    chosen = ["-k", " and ".join(f"not {word}" for word in _OTHERS), f"{tests}/tool_parsers", f"{tests}/reasoning"]
    results: dict[str, dict[str, str]] = defaultdict(dict)
    # The tests do not say where the prompt ends: a case holds if it does in one of two places.
    for opened in ("", "1"):
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run(
                [sys.executable, "-P", "-m", "pytest", *options.split(), *places, *chosen],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PEER_RESULTS": file.name, "PEER_OPENED": opened},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            for family, name, problem in json.loads(Path(file.name).read_text("utf-8") or "[]"):
                if not opened or not problem:
                    results[family][name] = problem
    return results
