"""Log configuration: one format for all processes, on standard error. Prompts and responses are never logged."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

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


def summary(names: Sequence[str]) -> tuple[int, str]:
    """Return the number of ``names``, and the first of them joined by commas."""
    return len(names), ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")


def configure(level: str, *, as_json: bool) -> None:
    """Log messages of ``level`` ('debug' to 'error') and above, as text or as one JSON object per line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("arq", "asyncio", "uvicorn", "httpx", "httpcore", "urllib3", "filelock"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.root.level))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
