"""Progress: lines where there is no terminal or no rich, drawings where there are."""

import io
import sys
import time

import pytest

from cli.base import progress
from cli.base.progress import Stages, bar, terminal


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with bar("Uploading", 2_000, unit="bytes") as advance:
        advance(500)
        monkeypatch.setattr(progress, "_LINE_EVERY", -1.0)
        advance(500)
        advance(500)
    assert capsys.readouterr() == ("", "Uploading: 1,000 of 2,000 bytes\nUploading: 1,500 of 2,000 bytes\n")


def test_a_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with bar("Requests [/x]", 20) as advance:
        advance(5)
        advance(15)
    assert "Requests [/x]" in screen.getvalue()
    assert "20/20" in screen.getvalue()


def test_stages_are_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    with Stages(stream) as stages:
        stages.begin("one")
        stages.begin("two")
    assert stream.getvalue() == "one\ntwo\n"


def test_a_stage_on_a_terminal_ends_with_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    screen = Screen()
    with Stages(screen) as stages:
        stages.begin("[one]")
        now = 2.5
        stages.begin("shows itself", silent=False)
    lines = screen.getvalue().splitlines()
    assert lines[-2].endswith("[one]  2.5 s")
    assert lines[-1] == "shows itself"


def test_a_terminal_without_rich_or_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert terminal(Screen()) is not None
    monkeypatch.setenv("TERM", "dumb")
    assert terminal(Screen()) is None
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert terminal(Screen()) is None
