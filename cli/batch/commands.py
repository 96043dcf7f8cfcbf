"""The commands: submit, status, cancel and results."""

import hashlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from cli.base.api_client import ApiClient, api_options
from cli.base.output import echo
from cli.base.progress import Stages, bar
from cli.batch.client import Client
from shared.runtime.logs import escaped

_POLL = 1.0
"""Polling interval of a batch in seconds."""

_ENDED = ("completed", "failed", "expired", "cancelled")
_REASONS = 3
"""Maximum number of different errors to show."""
_DIGEST = "sha256"
"""Metadata by which a batch is found again: the digest of its input file."""


@click.group()
def batch() -> None:
    """Submit batches of requests and download their results.

    FILE is an input file or the id of a batch. The batch of an input file is found by the file's content.

    \b
    vinoqueue batch submit requests.jsonl --wait
    vinoqueue batch status requests.jsonl
    vinoqueue batch results requests.jsonl
    """


@batch.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--wait", is_flag=True, help="Show progress until the batch ends.")
@api_options
def submit(file: Path, wait: bool, url: str, api_key: str) -> None:
    """Upload FILE and create a batch of its requests; print the batch's id."""
    client = Client(ApiClient(url, api_key))
    endpoint = _endpoint(file)
    with bar("Uploading", file.stat().st_size, unit="bytes") as advance:
        file_id = client.upload(file, advance)
    made = client.create(file_id, endpoint, {_DIGEST: _digest(file), "file": file.name[:512]})
    echo(escaped(made["id"]))
    if wait:
        _end(_follow(client, made))


@batch.command()
@click.argument("file")
@click.option("--watch", is_flag=True, help="Show progress until the batch ends.")
@click.option("--json", "as_json", is_flag=True, help="Print the batch as JSON.")
@api_options
def status(file: str, watch: bool, as_json: bool, url: str, api_key: str) -> None:
    """Show the state of a batch."""
    client = Client(ApiClient(url, api_key))
    found = _find(client, file)
    if watch:
        found = _follow(client, found)
    echo(json.dumps(found) if as_json else _described(found))


@batch.command()
@click.argument("file")
@api_options
def cancel(file: str, url: str, api_key: str) -> None:
    """Cancel a batch; results of requests that have ended are kept."""
    client = Client(ApiClient(url, api_key))
    echo(_described(client.cancel(_find(client, file)["id"])))


@batch.command()
@click.argument("file")
@click.option("--output", type=click.Path(path_type=Path), help="File for the results; default: FILE.output.jsonl.")
@click.option("--errors", type=click.Path(path_type=Path), help="File for the errors; default: FILE.errors.jsonl.")
@api_options
def results(file: str, output: Path | None, errors: Path | None, url: str, api_key: str) -> None:
    """Wait for a batch to end, and download its results and errors."""
    client = Client(ApiClient(url, api_key))
    found = _follow(client, _find(client, file))
    stem = Path(file).with_suffix("") if file != found["id"] else Path(file)
    for field, target in (
        ("output_file_id", output or stem.with_name(f"{stem.name}.output.jsonl")),
        ("error_file_id", errors or stem.with_name(f"{stem.name}.errors.jsonl")),
    ):
        if (file_id := found[field]) is not None:
            with bar(str(target), client.size(file_id), unit="bytes") as advance:
                client.download(file_id, target, advance)
            echo(str(target))
            if field == "error_file_id":
                for reason in _reasons(target):
                    echo(f"  {reason}", err=True)
    _end(found)


def _follow(client: Client, found: dict[str, Any]) -> dict[str, Any]:
    """Show the progress of a batch until it has ended; return it."""
    with Stages() as stages:
        if found["status"] == "validating":
            stages.begin("Validating the input file")
        while found["status"] == "validating":
            time.sleep(_POLL)
            found = client.get(found["id"])
    shown = 0
    with bar("Requests", found["request_counts"]["total"]) as advance:
        while True:
            counts = found["request_counts"]
            advance(counts["completed"] + counts["failed"] - shown)
            shown = counts["completed"] + counts["failed"]
            if found["status"] in _ENDED:
                return found
            time.sleep(_POLL)
            found = client.get(found["id"])


def _end(found: dict[str, Any]) -> None:
    """Print how a batch ended; exit with code 1 unless it is complete and any of its requests succeeded."""
    echo(_described(found), err=True)
    if found["status"] != "completed" or not found["request_counts"]["completed"]:
        raise SystemExit(1)


def _described(found: dict[str, Any]) -> str:
    counts = found["request_counts"]
    lines = [
        f"{found['id']}  {found['status']}  {counts['completed']} completed, {counts['failed']} failed "
        f"of {counts['total']}"
    ]
    for error in (found["errors"] or {}).get("data", ()):
        place = f"line {error['line']}: " if error["line"] is not None else ""
        lines.append(f"  {place}{error['message']}")
    return "\n".join(map(escaped, lines))


def _reasons(errors: Path) -> list[str]:
    """Return the most frequent errors of an error file, each with the number of its requests."""
    messages: Counter[str] = Counter()
    with errors.open("rb") as content:
        for line in content:
            result = json.loads(line)
            body = (result.get("response") or {}).get("body") or result
            messages[str((body.get("error") or {}).get("message", "unknown error"))] += 1
    return [escaped(f"{count} failed: {message}") for message, count in messages.most_common(_REASONS)]


def _find(client: Client, file: str) -> dict[str, Any]:
    """Return the batch with this id, or the newest one of this input file."""
    path = Path(file)
    if not path.is_file():
        return client.get(file)
    digest = _digest(path)
    for found in client.batches():
        if (found["metadata"] or {}).get(_DIGEST) == digest:
            return found
    raise click.ClickException(f"No batch was submitted of {file} as it is now. Name the batch by its id.")


def _endpoint(file: Path) -> str:
    with file.open("rb") as content:
        for line in content:
            if line.strip():
                try:
                    return str(json.loads(line)["url"])
                except (ValueError, KeyError, TypeError):
                    raise click.ClickException(
                        f"The first line of {file} is no request: "
                        '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {...}}'
                    ) from None
    raise click.ClickException(f"{file} is empty.")


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
