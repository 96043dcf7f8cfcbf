"""``vinoqueue chat`` in a real terminal, with the simulated engine."""

import os
import re
import subprocess
from contextlib import closing
from pathlib import Path

from shared.runtime.processes import module_command
from tests.support.fleet import SEEING, Fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.pictures import SIDE, picture, png
from tests.support.terminal import Terminal

running = fleet_fixture(*SEEING, lease=None)


def command(running: Fleet, *arguments: str) -> list[str]:
    return module_command("cli.main", "chat", "--url", f"http://127.0.0.1:{running.port}", *arguments)


def once(running: Fleet, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(running, *arguments), input=stdin, capture_output=True, text=True, check=False)


def test_one_answer(running: Fleet) -> None:
    done = once(running, "[[say hello there]]")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello there\n", "")
    assert once(running, stdin="[[say hello there]]").stdout == done.stdout


def test_answers_have_a_maximum_that_is_shown(running: Fleet) -> None:
    done = once(running, "[[tokens 3000]]")
    assert done.stderr == "(cut off after 1024 tokens: --max-tokens allows more)\n"
    done = once(running, "--max-tokens", "2", "[[tokens 3]]")
    assert "(cut off after 2 tokens" in done.stderr


def test_errors_are_those_of_the_api(running: Fleet) -> None:
    done = once(running, "--model", "nobody", "Hello")
    assert done.returncode == 1
    assert done.stderr == "Error: The model 'nobody' is not served. Served models: sim.\n"


def test_text_that_is_not_utf_8_is_refused_in_one_line(running: Fleet) -> None:
    latin = b"caf\xe9"
    by_argument = subprocess.run([*command(running), latin], capture_output=True, check=False)
    by_input = subprocess.run(
        command(running), input=latin, env=os.environ | {"LC_ALL": "C.UTF-8"}, capture_output=True
    )
    by_key = subprocess.run([*command(running), "--api-key", latin, "Hello"], capture_output=True, check=False)
    address = running.store.url
    create = module_command("cli.main", "key", "create", "--redis-url", address, "--name")
    by_name = subprocess.run([*create, latin], capture_output=True, check=False)
    for done in (by_argument, by_input, by_key, by_name):
        assert done.returncode == 1
        assert re.fullmatch(rb"Error: .* has a character that can't be used there .*\n", done.stderr), done.stderr


def test_an_answer_is_stopped_and_the_chat_goes_on(running: Fleet) -> None:
    with closing(Terminal(command(running))) as terminal:
        _stop_an_answer(running, terminal)


def _stop_an_answer(running: Fleet, terminal: Terminal) -> None:
    terminal.until(">>> ")
    terminal.type("/max-tokens 6000\n[[tokens 6000]]\n")
    running.until(lambda: [one.get("used", 0) for one in running.workers()] == [1], "the request to run")
    terminal.type("\x03")
    terminal.until("(stopped)")
    running.until(lambda: [one.get("used", 0) for one in running.workers()] == [0], "the slot to be free")
    terminal.until(">>> ")
    terminal.type('"""[[tokens 3]] first\nsecond"""\n')
    assert terminal.until(">>> ").strip()
    terminal.type("/max-tokens 2\n[[tokens 3]]\n")
    terminal.until("(cut off after 2 tokens")
    terminal.type("/nothing\n")
    terminal.until("There is no command '/nothing'")
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_an_image_is_sent(running: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(png(picture(1).pixels(SIDE, SIDE)))
    done = once(running, "--image", str(file), "[[tokens 3]]")
    assert (done.returncode, done.stderr) == (0, "")
    file.write_bytes(b"<svg/>")
    done = once(running, "--image", str(file), "[[tokens 3]]")
    assert "The image is an SVG or XML file" in done.stderr
