"""Runs pip for the Makefile and says what it is doing: ``python install.py WHAT PIP-ARGUMENTS...``.

Prints one line when it begins, progress while packages come in, and one line at the end; pip's own words only when
it fails. Needs nothing but the standard library, because it runs before anything is installed.
"""

import ast
import os
import re
import subprocess
import sys
import time
from collections import deque

# pip's words for a package that it fetches or finds in its cache, with the size where it is large.
_FETCHED = re.compile(
    r"^\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([\w.]+-[\w.+]+)-\S*\.whl\S*(?: \(([\d.]+ [kMG]?B)\))?"
)
_FAILURE_LINES = 40

_FETCHING = {
    "index-url", "extra-index-url", "no-index", "find-links", "trusted-host", "cert", "client-cert", "proxy",
    "keyring-provider", "timeout", "default-timeout", "retries", "cache-dir", "no-cache-dir",
}  # fmt: skip
"""Settings of pip that count: how packages are fetched. Others would install them elsewhere, or other ones."""


def main(what: str, arguments: list[str]) -> int:
    """Install, and return pip's exit code."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    started = time.monotonic()
    print(f"Installing {what}", flush=True)
    last: deque[str] = deque(maxlen=_FAILURE_LINES)
    fetched = 0
    with subprocess.Popen(
        [*pip, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            if match := _FETCHED.match(line):
                fetched += 1
                size = match[2] or ""
                _progress(f"  {fetched:3}  {match[1]}  {size}".rstrip(), notable=size.endswith("MB"))
            elif line.startswith("Installing collected packages"):
                _progress("  unpacking", notable=True)
    if process.returncode != 0:
        sys.stderr.writelines(["\n", *last])
        print(f"\nInstalling {what} failed. Nothing is lost: 'make' goes on from here.", file=sys.stderr)
    else:
        _progress(f"  done in {time.monotonic() - started:.0f} s", notable=True, last=True)
    return process.returncode


def _environment() -> dict[str, str]:
    """Return the environment with those settings of pip's variables and files that count."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found = re.findall(r"^(global|install|:env:)\.([a-z-]+)=(.+)$", listed.stdout, re.MULTILINE)
    found.sort(key=lambda setting: ("global", "install", ":env:").index(setting[0]))
    kept = {
        f"PIP_{name.replace('-', '_').upper()}": str(ast.literal_eval(value))
        for _, name, value in found
        if name in _FETCHING
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return others | kept | {"PIP_CONFIG_FILE": os.devnull}


def _progress(text: str, *, notable: bool, last: bool = False) -> None:
    """Show progress: on a terminal in one line that is written over, elsewhere a line for what is ``notable``."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", flush=True)
    elif notable:
        print(text, flush=True)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        print("\nStopped. Nothing is lost: 'make' goes on from here.", file=sys.stderr)
        raise SystemExit(130) from None
