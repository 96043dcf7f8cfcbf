"""Replays the parser cases of other servers' own tests, from a folder with their source, and prints counts per family.

``python -m tools.peers vllm FOLDER`` runs vLLM's tests of parsers with ours behind the interface of its parsers;
``python -m tools.peers llama FOLDER`` reads the cases and chat templates of llama.cpp's test-chat.cpp;
``python -m tools.peers ovms FOLDER`` reads the inputs and expectations in OpenVINO Model Server's C++ tests;
``python -m tools.peers templates FOLDER`` makes a call with each of the chat templates in any folder.
Nothing of their source is in this repository. ``--failures`` prints each case that fails, ``--list`` all as a table.
What we do otherwise on purpose is in ``differences.toml``.
"""

import argparse
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tools.peers import llama, ovms, templates, vllm

DIFFERENCES = Path(__file__).with_name("differences.toml")
PASSED = "hold"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.peers", description=__doc__)
    parser.add_argument("peer", choices=["llama", "ovms", "templates", "vllm"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    results = {"llama": llama.replay, "ovms": ovms.replay, "templates": templates.replay, "vllm": vllm.replay}[
        options.peer
    ](options.folder)
    known = tomllib.loads(DIFFERENCES.read_text("utf-8")).get(options.peer, {})
    every: Counter[str] = Counter()
    for family, cases in sorted(results.items()):
        why = {name: _reason(known, f"{family} {name}", problem) for name, problem in cases.items()}
        every += (counts := Counter(why.values()))
        if options.list:
            print(*(f"{name}\t{family}\t{why[name] or cases[name]}" for name in cases), sep="\n")
            continue
        print(f"{family:32} {counts[PASSED]:4} of {len(cases)}, {len(cases) - counts[PASSED] - counts['']} on purpose")
        for name, problem in cases.items():
            if problem and options.failures:
                print(f"    {name}: {why[name] or problem}")
    for reason, count in every.most_common():
        print(f"{count:4} {reason or 'fail'}")
    print(f"{every[PASSED] / max(1, every[PASSED] + every['']):.1%} of those that do not differ on purpose")


def _reason(known: Mapping[str, list[str]], case: str, problem: str) -> str:
    """Return why a case has a problem on purpose; empty if there is no reason."""
    if not problem or problem.startswith(templates.AS_TEXT):
        return problem or PASSED
    for reason, entries in known.items():
        for family, _, part in (entry.partition(" ") for entry in entries):
            if case.startswith(f"{family} ") and part in case:
                return reason
    return ""


if __name__ == "__main__":
    main()
