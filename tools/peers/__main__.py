"""Replays the parser cases of other servers' own tests, from a folder with their source, and prints counts per family.

``python -m tools.peers vllm FOLDER`` runs vLLM's tests of parsers with ours behind the interface of its parsers;
``python -m tools.peers ovms FOLDER`` reads the inputs and expectations in OpenVINO Model Server's C++ tests;
``python -m tools.peers templates FOLDER`` finds the formats of the chat templates in any folder.
Nothing of their source is in this repository. ``--failures`` prints each case that fails.
"""

import argparse
from pathlib import Path

from tools.peers import ovms, templates, vllm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.peers", description=__doc__)
    parser.add_argument("peer", choices=["ovms", "templates", "vllm"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--failures", action="store_true")
    options = parser.parse_args()
    results = {"ovms": ovms.replay, "templates": templates.replay, "vllm": vllm.replay}[options.peer](options.folder)
    passed = total = 0
    for family, cases in sorted(results.items()):
        good = sum(problem == "" for problem in cases.values())
        passed, total = passed + good, total + len(cases)
        print(f"{family:32} {good:4} of {len(cases)}")
        for name, problem in cases.items():
            if problem and options.failures:
                print(f"    {name}: {problem}")
    print(f"{'all':32} {passed:4} of {total}")


if __name__ == "__main__":
    main()
