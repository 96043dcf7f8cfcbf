"""The AI SDK for JavaScript: the schemas of its providers check every answer, whole and streamed."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet

PACKAGE = Path(__file__).parents[1] / "javascript"
CALL = '[[say <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>]]'


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm (apt-get install npm)")
def test_every_provider_parses_every_answer(session_fleet: Fleet, tmp_path: Path) -> None:
    folder = shutil.copytree(PACKAGE, tmp_path / "javascript")
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
    command = ["node", "ask.mjs", f"http://127.0.0.1:{session_fleet.port}", "sim", CALL]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert len(results) == 12
    for name, seen in results.items():
        assert "error" not in seen, (name, seen)
        called = name.endswith(" call") and not name.startswith("completion")
        for form in ("whole", "streamed"):
            assert seen[form]["calls"] == ([{"city": "Rome"}] if called else []), (name, seen)
            assert seen[form]["finishReason"] in (("tool-calls",) if called else ("stop", "length")), (name, seen)
