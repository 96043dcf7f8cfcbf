"""The engine alone in its own process, as the reference for other measurements."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shared.runtime.processes import module_command
from worker.engine.options import EngineOptions


class EngineAlone:
    """The process of :mod:`bench.engine_alone`."""

    def __init__(self, options: EngineOptions) -> None:
        self._process = subprocess.Popen(
            module_command("bench.engine_alone", msgspec.json.encode(options).decode()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def run(self, prompts: list[str], tokens: int, concurrency: int, images: Sequence[Path] = ()) -> dict[str, Any]:
        """Generate for every prompt. ``images`` are the files of one image for each; such answers don't end early."""
        assert self._process.stdin is not None
        job = {"prompts": prompts, "tokens": tokens, "concurrency": concurrency, "images": list(map(str, images))}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._answer()
        return answer

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())
