"""``vinoqueue up`` as people use it: it starts everything, keeps it running, and leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from shared.runtime.processes import die_with_parent, module_command
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import SIMULATED, free_port
from tests.support.paths import MODELS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the process table from /proc")


class Up:
    """A running ``vinoqueue up`` and what it has printed."""

    def __init__(self, folder: Path, runtime: Path, *arguments: str, ignored: Collection[signal.Signals] = ()) -> None:
        self.port = free_port()
        self.runtime = runtime
        self._log = folder / "up.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VINOQUEUE_")}

        def prepare() -> None:
            die_with_parent()
            for number in (signal.SIGHUP, signal.SIGINT):  # the tests themselves may run in the background
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "up", "--port", str(self.port), *SIMULATED, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment | {"TMPDIR": str(runtime)},
                preexec_fn=prepare,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, details=lambda: self.output)

    def until_ready(self) -> None:
        self.until(lambda: "Vinoqueue serves sim" in self.output, "everything to be ready")

    def child(self, words: str) -> int:
        """The pid of the one direct child whose command line has ``words``."""
        (pid,) = self.pids(words)
        return pid

    def pids(self, words: str) -> list[int]:
        """The pids of the living direct children whose command lines have ``words``."""
        return [pid for pid in children(self.process.pid) if words in command_line(pid)]


@pytest.fixture
def up(tmp_path: Path, runtime: Path) -> Iterator[Up]:
    with started(tmp_path, runtime) as running:
        yield running


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A ready instance that all tests leave as it was."""
    with (
        TemporaryDirectory(prefix="vq-") as folder,
        started(tmp_path_factory.mktemp("lasting"), Path(folder)) as running,
    ):
        running.until_ready()
        yield running


@contextmanager
def started(folder: Path, runtime: Path, *arguments: str, ignored: Collection[signal.Signals] = ()) -> Iterator[Up]:
    """An instance that is killed with all its processes when the block ends."""
    running = Up(folder, runtime, *arguments, ignored=ignored)
    tree: set[int] = set()
    try:
        yield running
        tree = descendants(running.process.pid)
    finally:
        running.process.kill()
        running.process.wait()
        for pid in filter(alive, tree):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl: apt-get install curl")
def test_the_printed_command_streams_an_answer(lasting: Up) -> None:
    (command,) = re.findall(r"^ *(curl .*)$", lasting.output, re.MULTILINE)
    (page,) = re.findall(r"^Chat and fleet view: (.*)$", lasting.output, re.MULTILINE)
    assert page == re.search(r"(http://.*/)v1/chat", command)[1]  # type: ignore[index]
    address, body = re.search(r"(http\S+) .* -d '(.*)'$", command).groups()  # type: ignore[union-attr]
    assert address == f"http://127.0.0.1:{lasting.port}/v1/chat/completions"
    assert json.loads(body)["model"] == "sim"
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("data: {")
    assert answer.endswith("data: [DONE]\n\n")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl: apt-get install curl")
def test_the_command_for_an_embedder_computes_a_vector(tmp_path: Path, runtime: Path) -> None:
    with started(tmp_path, runtime, "--engine", "auto", "--model", str(MODELS / "embed-bert")) as up:
        up.until(lambda: "In another terminal" in up.output, "the command")
        (command,) = re.findall(r"^ *(curl .*)$", up.output, re.MULTILINE)
        answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert json.loads(answer)["data"][0]["embedding"]


def vinoqueue(runtime: Path, *arguments: str) -> Result:
    """Run a command as in a second terminal: with the same runtime directory, and no settings."""
    # The directory for temporary files, of which this process knows another, has the instances of others.
    with patch.object(tempfile, "tempdir", None):
        return CliRunner().invoke(main, arguments, env=environment_of(runtime))


def environment_of(runtime: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VINOQUEUE_", "XDG_"))}
    return environment | {"TMPDIR": str(runtime), "XDG_RUNTIME_DIR": ""}


def test_the_printed_status_command_shows_what_runs(lasting: Up) -> None:
    lasting.until(lambda: "In another terminal" in lasting.output, "the command")
    (command,) = re.findall(r"^In another terminal: (.*)$", lasting.output, re.MULTILINE)
    # As pasted, in another directory, where nothing is on the PATH.
    shown = subprocess.run(["/bin/sh", "-c", f"{command} --json"], capture_output=True, check=True, cwd="/", env={})
    found = json.loads(shown.stdout)
    assert [worker["pid"] for worker in found["workers"]] == [lasting.child("cli.main worker")]
    assert [replica["pid"] for replica in found["replicas"]] == [lasting.child("cli.main api")]


def test_commands_find_the_running_instance_and_distinguish_two(lasting: Up, tmp_path: Path) -> None:
    status = vinoqueue(lasting.runtime, "status", "--json")
    assert [one["pid"] for one in json.loads(status.stdout)["replicas"]] == [lasting.child("cli.main api")]
    assert status.stderr == f"Using the store of 'vinoqueue up' on port {lasting.port}.\n"
    assert vinoqueue(lasting.runtime, "health", "api", "--port", str(lasting.port)).exit_code == 0
    arguments = module_command("cli.main", "worker", *SIMULATED, "--worker-id", "another")
    with subprocess.Popen(arguments, env=environment_of(lasting.runtime), preexec_fn=die_with_parent) as worker:
        lasting.until(lambda: "another" in vinoqueue(lasting.runtime, "status").stdout, "the second worker")
        worker.terminate()
    (tmp_path / "second").mkdir()
    with started(tmp_path / "second", lasting.runtime) as other:
        other.until_ready()
        both = vinoqueue(lasting.runtime, "status")
        assert both.exit_code == 2
        choices = dict(re.findall(r"--redis-url (\S+) +\(port (\d+)\)", both.stderr))
        assert set(choices.values()) == {str(lasting.port), str(other.port)}
        for url, port in choices.items():
            shown = json.loads(vinoqueue(lasting.runtime, "status", "--json", "--redis-url", url).stdout)
            assert [one["address"] for one in shown["replicas"]] == [f"http://127.0.0.1:{port}"]
        other.process.send_signal(signal.SIGTERM)
        assert other.process.wait(PATIENCE) == 0
        assert vinoqueue(lasting.runtime, "status").exit_code == 0


def ends(up: Up, number: signal.Signals, folder: Path) -> None:
    """A signal ends every process and leaves no file."""
    tree = descendants(up.process.pid)
    assert len(tree) >= 4, "the store, the API, the worker and the worker's own processes"
    up.process.send_signal(number)
    assert up.process.wait(PATIENCE) == 0
    assert [command_line(pid) for pid in tree if alive(pid)] == []
    assert [path.name for path in folder.iterdir()] == ["up.log"]
    assert list(up.runtime.iterdir()) == []


def test_a_terminal_that_closes_ends_every_process_and_leaves_no_file(up: Up, tmp_path: Path) -> None:
    up.until_ready()
    # From the first key on, requests need one.
    assert vinoqueue(up.runtime, "key", "create").stdout.startswith("sk-")
    assert "valid" in vinoqueue(up.runtime, "key", "list").stdout
    ends(up, signal.SIGHUP, tmp_path)


def test_a_signal_while_it_starts_ends_every_process(up: Up) -> None:
    up.until(lambda: len(children(up.process.pid)) == 3, "the first processes")
    tree = descendants(up.process.pid)
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(PATIENCE) == 0
    assert not any(map(alive, tree))


def test_a_second_signal_does_not_wait_for_a_child_that_hangs(tmp_path: Path, runtime: Path) -> None:
    up = Up(tmp_path, runtime, "--drain", str(10 * PATIENCE))
    up.until_ready()
    tree = descendants(up.process.pid)
    os.kill(up.child("cli.main api"), signal.SIGSTOP)
    up.process.send_signal(signal.SIGINT)
    up.until(lambda: "Stopping" in up.output, "the first signal to be seen")
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(PATIENCE) == 0
    assert not any(map(alive, tree))


def test_killed_outright_it_takes_every_process_with_it_and_what_it_leaves_is_ignored(up: Up) -> None:
    up.until_ready()
    tree = descendants(up.process.pid)
    up.process.kill()
    up.process.wait()
    up.until(lambda: not any(map(alive, tree)), "the others to end")
    assert list(up.runtime.glob("*/*/valkey.sock"))
    assert "Using the store" not in vinoqueue(up.runtime, "status").stderr


@pytest.mark.parametrize("part", ["worker", "api"])
def test_a_child_that_dies_is_started_again(lasting: Up, part: str) -> None:
    (before,), deaths = lasting.pids(f"cli.main {part}"), lasting.output.count("was killed by SIGKILL; it starts again")
    os.kill(before, signal.SIGKILL)
    lasting.until(
        lambda: lasting.output.count("was killed by SIGKILL; it starts again") > deaths, "the death to be logged"
    )
    lasting.until(lambda: lasting.pids(f"cli.main {part}") not in ([], [before]), "another process")
    chat = ["chat", "--url", f"http://127.0.0.1:{lasting.port}", "[[say hello]]"]
    lasting.until(lambda: vinoqueue(lasting.runtime, *chat).output == "hello\n", "an answer")


def test_the_end_of_a_login_takes_nothing_away(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``$XDG_RUNTIME_DIR`` goes with the last session of its user, tmux and nohup stay."""
    session = tmp_path / "session"
    session.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    with started(tmp_path, runtime) as up:
        up.until_ready()
        shutil.rmtree(session)
        assert vinoqueue(runtime, "status").exit_code == 0
        (before,) = up.pids("cli.main worker")
        os.kill(before, signal.SIGKILL)
        up.until(lambda: "is served again" in up.output, "another worker")


def test_ignored_signals_stay_ignored_and_sigterm_ends_every_process(tmp_path: Path, runtime: Path) -> None:
    """As under nohup, and in the background of a script."""
    with started(tmp_path, runtime, ignored=(signal.SIGHUP, signal.SIGINT)) as up:
        up.until_ready()
        up.process.send_signal(signal.SIGHUP)
        up.process.send_signal(signal.SIGINT)
        assert "hello" in vinoqueue(runtime, "chat", "--url", f"http://127.0.0.1:{up.port}", "[[say hello]]").output
        assert "Stopping" not in up.output
        ends(up, signal.SIGTERM, tmp_path)


def test_without_its_store_it_ends_and_says_so(up: Up) -> None:
    up.until_ready()
    tree = descendants(up.process.pid)
    os.kill(up.child("valkey-server"), signal.SIGKILL)
    assert up.process.wait(PATIENCE) == 1
    assert "Valkey was killed by SIGKILL" in up.output
    assert not any(map(alive, tree))


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path, runtime: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        up = Up(tmp_path, runtime, "--port", str(taken))
        assert up.process.wait(PATIENCE) == 1
    assert f"port {taken}" in up.output
    assert "--port" in up.output
    assert "Starting" not in up.output


def test_a_store_that_does_not_answer_is_reported_before_anything_starts(tmp_path: Path, runtime: Path) -> None:
    up = Up(tmp_path, runtime, "--redis-url", "redis://127.0.0.1:1/0")
    assert up.process.wait(PATIENCE) == 1
    assert "The store can't be reached" in up.output
    assert "Starting" not in up.output


def test_a_worker_that_can_not_start_ends_everything(tmp_path: Path, runtime: Path) -> None:
    up = Up(tmp_path, runtime, "--engine", "openvino", "--model", str(tmp_path / "missing.gguf"))
    assert up.process.wait(PATIENCE) == 1
    assert "missing.gguf" in up.output
    assert "The worker did not start" in up.output


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    return _stat(pid)[0] not in ("", "Z", "X")


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").removesuffix(" ")
    except OSError:
        return ""


def children(parent: int) -> list[int]:
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in processes if _stat(pid)[1] == parent]


def descendants(parent: int) -> set[int]:
    found: set[int] = set()
    for child in children(parent):
        found |= {child, *descendants(child)}
    return found


def _stat(pid: int) -> tuple[str, int]:
    """State letter and parent of a process; ('', 0) when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])
