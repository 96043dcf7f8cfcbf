"""Log configuration: one format for all processes, on standard error. Prompts and responses are never logged.

A thread writes the lines, so that a pipe that nobody reads blocks no event loop. A process that is killed loses the
lines that wait for the thread.
"""

import json
import logging
import os
import queue
import re
import select
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_MAX_NAMES = 10
_MAX_CHARACTERS = 128
"""Maximum number of logged characters of a field."""

_PLAIN = re.compile(r"[A-Za-z0-9._:/+@-]{1,128}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Fields:
    """Named values as the argument of a log message.

    As text they are ``name=value``, separated by spaces. A value with anything but letters, digits and some punctuation
    is a JSON string, so that clients cannot forge lines. In JSON logs they are members of the line's object. ``None``
    is omitted.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = {
            name: value[:_MAX_CHARACTERS] if isinstance(value, str) else value
            for name, value in values.items()
            if value is not None
        }

    def __str__(self) -> str:
        return " ".join(f"{name}={_text(value)}" for name, value in self.values.items())


def escaped(text: str) -> str:
    """Return ``text`` with its control characters escaped, so that it cannot forge lines or control a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """Formats each record as one line of text, followed by its traceback if it has one.

    Control characters are escaped, so that texts in messages cannot forge lines or control a terminal.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without the traceback."""
        record.message = escaped(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. :class:`Fields` that are the message's only argument become separate members."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        match record.args:
            case (Fields() as fields,):
                line |= {"message": str(record.msg).replace("%s", "").strip(), **fields.values}
            case _:
                line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


_MAX_WAITING = 10_000
"""Maximum number of lines that wait to be written; more are dropped and counted."""

_FLUSH = 2.0
"""Seconds for which a process that exits waits for its lines to be written."""

_STANDARD_ERROR = 2


class LineWriter(logging.Handler):
    """Formats records as lines at once, and writes them to standard error in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.Queue[str] = queue.Queue(_MAX_WAITING)
        self.dropped = 0
        """Number of lines that were not written, because too many waited."""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue or drop the line."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until the lines are written, for two seconds at most. :mod:`logging` calls it when the process exits."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _FLUSH)

    def _run(self) -> None:
        reported = 0
        while True:
            _write(self._lines.get())
            if (dropped := self.dropped) > reported and self._lines.empty():
                message = "%d lines of this log were dropped, because standard error was not read"
                arguments, reported = (dropped - reported,), dropped
                _write(self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, message, arguments, None)))
            self._lines.task_done()


def _write(line: str) -> None:
    """Write a line. Not through :data:`sys.stderr`, whose lock a blocked thread would hold when the process exits."""
    left = memoryview(f"{line}\n".encode(errors="backslashreplace"))
    while left:
        try:
            left = left[os.write(_STANDARD_ERROR, left) :]
        except BlockingIOError:
            select.select([], [_STANDARD_ERROR], [])
        except OSError:
            return  # closed


def dropped_lines() -> int:
    """Return how many lines of this process's log were dropped."""
    return sum(handler.dropped for handler in logging.root.handlers if isinstance(handler, LineWriter))


def summary(names: Sequence[str]) -> tuple[int, str]:
    """Return the number of ``names``, and the first of them joined by commas."""
    return len(names), ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")


def configure(level: str, *, as_json: bool) -> None:
    """Log messages of ``level`` ('debug' to 'error') and above, as text or as one JSON object per line, with Python's
    warnings and the exceptions that end the process."""
    handler = LineWriter()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("arq", "asyncio", "uvicorn", "httpx", "httpcore", "urllib3", "filelock"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.root.level))
    logging.captureWarnings(True)
    sys.excepthook = _log_exception


def _log_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("the process fails", exc_info=(kind, error, traceback))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
