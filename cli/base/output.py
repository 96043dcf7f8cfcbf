"""What commands print: control characters in texts of others cannot control the terminal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, except tab and newline."""


def printable(text: str) -> str:
    """Return ``text`` with its control characters escaped. Lines and tabs stay, and JSON stays valid JSON."""
    return _CONTROL.sub(lambda found: _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}"


def echo(text: str = "", *, err: bool = False, nl: bool = True, dim: bool = False, file: TextIO | None = None) -> None:
    """Print ``text``: to standard output, to standard error if ``err``, or to ``file``.

    ``nl``: with a newline at its end. ``dim``: in a faint colour on a terminal.
    """
    text = printable(text)
    click.echo(click.style(text, dim=True) if dim else text, err=err, nl=nl, file=file)


@contextmanager
def printable_errors() -> Iterator[None]:
    """Escape control characters in the message of a :class:`click.ClickException`."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = printable(error.message)
        raise
