"""Log lines as text and as JSON."""

import json
import logging
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
