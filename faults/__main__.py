"""``python -m faults [NAMES]``: run the scenarios and write the report. Run by ``make faults``."""

import argparse
import asyncio
import random
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from faults import neighbours, slots, swaps
from faults.report import outcome, write_report
from faults.runner import Result, run
from faults.scenario import Scenario
from faults.scenarios import SCENARIOS, soak
from faults.versions import source_of

REPORT = Path("docs/fault-tolerance.md")
NEIGHBOURS = "neighbours"
"""The fuzzer of :mod:`faults.neighbours` and the shares of :mod:`faults.slots`, which are no scenarios."""
_SHARES = 8.0
"""For how long (seconds) 'neighbours' measures each throughput of the shares of slots."""
SWAPS = "swaps"
"""The run of :mod:`faults.swaps`, which is no scenario either."""


def main() -> int:
    """Run what the command line names; return 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios to run; all without any")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="repeats the run that had it")
    parser.add_argument("--soaks", type=int, default=2, help="how many random soaks to run, from the seed on")
    parser.add_argument("--soak-seconds", type=float, default=60.0, help="how long each soak is")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the greedy key of 'neighbours' sends")
    parser.add_argument("--swaps", type=int, default=1000, help="how many swaps 'swaps' makes")
    parser.add_argument(
        "--from",
        dest="first",
        metavar="REVISION",
        help="git revision that the first processes run; replacements run this",
    )
    options = parser.parse_args()
    soaks = tuple(soak(options.seed + number, options.soak_seconds) for number in range(options.soaks))
    known = {one.name: one for one in (*SCENARIOS, *soaks)}
    if options.names == [NEIGHBOURS]:
        return _neighbours(options.seed, options.seconds)
    if options.names == [SWAPS]:
        return _swaps(options.swaps)
    if unknown := set(options.names) - set(known):
        parser.error(
            f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(known)}, {NEIGHBOURS} and {SWAPS}"
        )
    chosen = [known[name] for name in options.names] or list(known.values())
    if options.first:
        folder = source_of(options.first)
        chosen = [replace(one, first_version=folder) for one in chosen]
    print(f"seed {options.seed}", flush=True)
    soaking = f"--seed {options.seed} --soaks {options.soaks} --soak-seconds {options.soak_seconds:g}"
    command = f"make faults ARGS='{' '.join((*options.names, soaking))}'"
    results: list[Result] = []
    for scenario in chosen:
        results.append(_run(scenario, options.seed))
        if not options.first:
            write_report(REPORT, map(outcome, results), command, whole=not options.names)
    return int(any(result.wrong for result in results))


def _neighbours(seed: int, seconds: float) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"vinoqueue-{NEIGHBOURS}-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    report = asyncio.run(neighbours.run(folder, seed=seed, seconds=seconds))
    found = {neighbours.summary(report): report.wrong}
    for number, kind in enumerate(slots.KINDS):
        (own := folder / f"slots-{number}").mkdir()
        shares = asyncio.run(slots.run(own, kind, seconds=_SHARES))
        found[str(shares)] = shares.wrong
    print(*found, sep="\n", flush=True)
    rows = ((*text.splitlines()[0].split(": ", 1), *[""] * 7, len(wrong)) for text, wrong in found.items())
    write_report(REPORT, rows, f"make faults ARGS='{NEIGHBOURS} --seed {seed} --seconds {seconds:g}'", whole=False)
    return int(any(found.values()))


def _swaps(count: int) -> int:
    print(swaps.HEAD, "| --: | --: | --: | --: | --: | --: |", sep="\n", flush=True)
    print_row = partial(print, flush=True)
    report = swaps.run(Path(tempfile.mkdtemp(prefix=f"vinoqueue-{SWAPS}-")), swaps=count, on_sample=print_row)
    print(*(f"BROKEN {one}" for one in report.wrong), sep="\n", flush=True)
    return int(bool(report.wrong))


def _run(scenario: Scenario, seed: int) -> Result:
    folder = Path(tempfile.mkdtemp(prefix=f"vinoqueue-{scenario.name}-"))
    result = asyncio.run(run(scenario, folder, seed=seed))
    recovery = "recovery {:.2f} s, worst {:.2f} s".format(*result.recovery) if result.recovery else "no pause"
    print(
        f"{scenario.name}: {result.completed} of {result.requests} completed, {result.aborted} left, "
        f"{result.errors} errors, {result.refused} refusals, {recovery}, at rest after {result.settled:.2f} s, "
        f"{result.seconds:.0f} s, +{result.growth:.0f} MB",
        flush=True,
    )
    for one in result.wrong[:10]:
        print(f"  BROKEN {one}", flush=True)
    if result.wrong:
        print(f"  {len(result.wrong)} in all; history and logs in {folder}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
