"""Log lines as text and as JSON."""

import json
import logging
import os
import re
import subprocess
import sys

from shared.runtime.logs import Fields, JsonFormatter, TextFormatter


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    """A record of an event, with the current exception if it ``failed``."""
    cause = sys.exc_info() if failed else None
    return logging.LogRecord("some.module", logging.WARNING, "file.py", 1, message, arguments, cause)


def line(of: logging.LogRecord) -> dict[str, object]:
    text = JsonFormatter().format(of)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def test_fields_are_members_of_the_object_with_their_types() -> None:
    fields = Fields({"id": "a b\n", "status": 200, "stream": True, "key": None, "long": "x" * 200})
    found = line(record("request %s", fields))
    assert str(found.pop("time")).endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "some.module",
        "message": "request",
        "id": "a b\n",
        "status": 200,
        "stream": True,
        "long": "x" * 128,
    }


def test_fields_as_text_can_not_forge_lines() -> None:
    fields = Fields({"id": "a b\n", "status": 200, "stream": True, "key": None})
    assert str(fields) == 'id="a b\\n" status=200 stream=true'


def test_other_messages_are_formatted() -> None:
    assert line(record("%d of %s", 3, "five"))["message"] == "3 of five"
    assert line(record("100 % of it"))["message"] == "100 % of it"


def test_an_exception_is_one_member() -> None:
    try:
        raise ValueError("no\nlines")
    except ValueError:
        found = line(record("it failed", failed=True))
    assert "ValueError: no\nlines" in str(found["exception"])


def test_messages_as_text_can_not_forge_lines() -> None:
    text = TextFormatter("%(levelname)s %(message)s").format(record("model %s", "a\nINFO b\x1b[2J\x85\u2028\té"))
    assert text == "WARNING model a\\nINFO b\\x1b[2J\\x85\\u2028\\té"


def test_a_traceback_follows_its_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        text = TextFormatter("%(levelname)s %(message)s").format(record("it failed", failed=True))
    assert text.startswith("WARNING it failed\nTraceback")
    assert text.endswith("ValueError: no")


BLOCKED = """
import logging
from shared.runtime import logs
logs._MAX_WAITING = 10
logs.configure("info", as_json=True)
for number in range(2000):
    logging.getLogger("some").info("line %d %s", number, "x" * 100)
print(logs.dropped_lines(), flush=True)
input()
logging.root.handlers[0].flush()
1 / 0
"""


def test_lines_that_nobody_reads_are_dropped_and_counted() -> None:
    command = (sys.executable, "-c", BLOCKED)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        dropped = int(process.stdout.readline())  # it has not stopped
        _, text = process.communicate("\n")
    lines = [json.loads(one) for one in text.splitlines()]
    numbers = [line["message"].split()[1] for line in lines if line["logger"] == "some"]
    assert 0 < len(numbers) == 2000 - dropped < 2000
    report = re.compile("([0-9]+) lines of this log were dropped, because standard error was not read")
    assert sum(int(found[1]) for line in lines if (found := report.fullmatch(line["message"]))) == dropped
    assert "ZeroDivisionError" in lines[-1]["exception"]  # what ends the process is a line, too


def test_a_process_ends_although_nobody_reads_its_log() -> None:
    code = BLOCKED.replace("input()\nlogging.root.handlers[0].flush()\n", "").replace("1 / 0", "print('end')")
    reader, writer = os.pipe()
    try:
        ran = subprocess.run((sys.executable, "-c", code), stdout=subprocess.PIPE, stderr=writer, text=True, check=True)
    finally:
        os.close(reader)
        os.close(writer)
    assert ran.stdout.endswith("end\n")
