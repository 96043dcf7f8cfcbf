"""regressions: what a token costs in counts that are the same on every machine, held against a budget.

``vinoqueue bench regressions`` shows the counts, a test in CI holds them against ``bench/regressions.json``, and
``python -m bench.regressions --write`` makes today's counts the budget, with some room.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import hot_path
from bench.hot_path import STREAMS, TOKENS, Walk
from bench.report import save, table

BUDGET = Path(__file__).with_suffix(".json")
ROOM = 0.06
"""The share by which a budget is above what was counted: smaller than a change worth a look, larger than what another
patch release of Python or of a library makes."""

_IMPORTS = {
    "'up'": "cli.main, cli.serve.commands, cli.up.supervisor",
    "the API": "cli.main, cli.serve.commands, api.main",
    "the worker": "cli.main, cli.serve.commands, worker.main",
    "the engine": "worker.engine.child, worker.openvino.engine",
    "prompts": "worker.prompt.child, worker.openvino.prompt_maker",
    "grammars": "worker.grammar.child, worker.openvino.grammar_profiler",
}
"""What each process imports before it is ready."""

REFRESH = "python -m bench.regressions --write"


def run(folder: Path) -> dict[str, Any]:
    """Count, print the table, and return the result."""
    found = count(folder)
    budget = read_budget()
    rows: list[dict[str, object]] = [
        {"count": name, "now": value, "budget": budget.get(name, ""), "over": "yes" * over(value, budget, name)}
        for name, value in found.items()
    ]
    print(table(f"regressions: {STREAMS} streams of {TOKENS} tokens, counted without a clock", rows))
    for line in complaints(found, budget):
        print(line)
    save("regressions", {"rows": rows})
    return {"rows": rows}


def count(folder: Path) -> dict[str, float]:
    """Walk the hot path, with stores in ``folder``, and return the counts that have budgets."""
    return counts(hot_path.walk(folder / "many"), hot_path.walk(folder / "one", 1)) | modules()


def modules() -> dict[str, float]:
    """The number of modules that each process imports: most of its start, and of its memory when it is idle."""
    code = "import sys, {}; print(len(sys.modules))"
    return {
        f"modules of {name}": float(subprocess.check_output([sys.executable, "-P", "-c", code.format(imports)]))
        for name, imports in _IMPORTS.items()
    }


def counts(walked: Walk, alone: Walk) -> dict[str, float]:
    """The counts that have budgets, by name: of a walk with many streams, and of one with a single stream."""
    emit, tokens, steps = walked.emit, walked.tokens, walked.steps
    return {
        "store commands a job, queueing and claiming": walked.queue_commands / STREAMS,
        "store commands a token": emit["commands"] / tokens,
        "store script calls a step": emit["scripts"] / steps,
        "publishes a step": emit["publishes"] / steps,
        "bytes a token into the store": emit["bytes_in"] / tokens,
        "bytes a token out of the store": emit["bytes_out"] / tokens,
        "bytes a token from the engine to the supervisor": walked.engine_bytes / tokens,
        "bytes a token to the client": walked.client_bytes / tokens,
        "calls a token in the supervisor": walked.supervisor_calls / tokens,
        "calls a token in the API": walked.api_calls / tokens,
        "calls a step in the supervisor, one stream": alone.supervisor_calls / alone.steps,
        "calls a step in the API, one stream": alone.api_calls / alone.steps,
        "bytes a step into the store, one stream": alone.emit["bytes_in"] / alone.steps,
    }


def complaints(found: dict[str, float], budget: dict[str, float]) -> list[str]:
    """Return a sentence for each count that exceeds its budget, has none, or no longer exists."""
    sentences = []
    for name, value in found.items():
        if name not in budget:
            sentences.append(f"'{name}' has no budget in {BUDGET.name}: {REFRESH}")
        elif over(value, budget, name):
            sentences.append(
                f"'{name}' is {value:.3f}, over its budget of {budget[name]:g} in bench/{BUDGET.name}. Take the cost "
                f"out again, or, where it is worth it, say so in the commit and write new budgets: {REFRESH}"
            )
    gone = budget.keys() - found.keys()
    return sentences + [f"'{name}' in {BUDGET.name} is counted no more: {REFRESH}" for name in sorted(gone)]


def over(value: float, budget: dict[str, float], name: str) -> bool:
    """Whether a count is above its budget."""
    return name in budget and value > budget[name]


def read_budget() -> dict[str, float]:
    """The most that each count may be; empty where nothing has been written yet."""
    if not BUDGET.exists():
        return {}
    budget: dict[str, float] = json.loads(BUDGET.read_text())
    return budget


def write_budget(found: dict[str, float]) -> None:
    """Make ``found`` the budget, with :data:`ROOM`."""
    budget = {name: math.ceil(value * (1 + ROOM) * 100) / 100 for name, value in found.items()}
    BUDGET.write_text(json.dumps(budget, indent=1))


def main(arguments: list[str]) -> int:
    """Count; with ``--write``, write the budget too. Returns the exit code: 1 if a count exceeds its budget."""
    if arguments not in ([], ["--write"]):
        print(f"'{' '.join(arguments)}' is not understood: give --write or nothing", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="vinoqueue-bench-") as folder:
        if not arguments:
            rows = run(Path(folder))["rows"]
            return 1 if complaints({row["count"]: row["now"] for row in rows}, read_budget()) else 0
        write_budget(count(Path(folder)))
        print(f"written: {BUDGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
