"""Ctrl-C while the Makefile installs."""

import os
import signal
import socket
import subprocess
import sys

from tests.support.paths import ROOT


def interruptible() -> None:
    """Undo what a shell does to commands that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_while_installing_ends_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        command = [sys.executable, str(ROOT / "requirements" / "install.py"), "what is needed"]
        index = ["--index-url", f"http://127.0.0.1:{port}/", "--ignore-installed", "anything"]
        with subprocess.Popen(
            [*command, *index],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=interruptible,
        ) as process:
            connection, _ = silent.accept()  # pip asks the index
            with connection:
                os.killpg(process.pid, signal.SIGINT)
                output, _ = process.communicate()
    assert process.returncode == 130
    assert output.endswith("Stopped. Nothing is lost: 'make' goes on from here.\n")
    assert "Traceback" not in output
