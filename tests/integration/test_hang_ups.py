"""A terminal that hangs up, ``--host ::`` and idle connections."""

import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from shared.runtime.processes import die_with_parent, module_command
from tests.security.raw import connect, head, is_closed, read_answer
from tests.support.fleet import PATIENT, SIMULATED, Fleet, fleet, text_of

TOKENS = 40


def _begin(ignored: Sequence[signal.Signals]) -> None:
    die_with_parent()
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)


def launch(
    ignored: Sequence[signal.Signals], arguments: Sequence[str], output: IO[bytes], environment: dict[str, str]
) -> Any:
    """Run a command in a session of its own, as a terminal does."""
    command = module_command("cli.main", *arguments)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        preexec_fn=partial(_begin, ignored),
    )


@pytest.fixture(params=[(), (signal.SIGHUP,)], ids=["terminal", "nohup"])
def ignored(request: pytest.FixtureRequest) -> Sequence[signal.Signals]:
    found: Sequence[signal.Signals] = request.param
    return found


@pytest.fixture
def in_sessions(tmp_path: Path, ignored: Sequence[signal.Signals]) -> Iterator[Fleet]:
    with fleet(tmp_path, lease=PATIENT, launch=partial(launch, ignored)) as running:
        running.worker(*SIMULATED[:-1], "0.05")
        running.api()
        yield running


def test_a_hang_up_drains_unless_it_is_ignored(in_sessions: Fleet, ignored: Sequence[signal.Signals]) -> None:
    create = in_sessions.client().chat.completions.create
    prompt: list[Any] = [{"role": "user", "content": f"[[tokens {TOKENS}]]"}]
    chunks = iter(create(model="sim", messages=prompt, stream=True, max_tokens=TOKENS))
    next(chunks)
    for process in in_sessions.processes:  # the worker and the replica
        os.killpg(process.popen.pid, signal.SIGHUP)
    assert len(text_of(chunks).split()) > TOKENS / 2, in_sessions.logs()
    if ignored:
        assert create(model="sim", messages=prompt, max_tokens=2).choices
        assert [process.popen.poll() for process in in_sessions.processes] == [None, None]
    else:
        assert [process.stopped() for process in in_sessions.processes] == [0, 0], in_sessions.logs()


def test_the_address_of_ipv6_accepts_both_families(patient_fleet: Fleet) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("needs IPv6")
    patient_fleet.api("--host", "::")
    for address in ("127.0.0.1", "::1"):
        connection = http.client.HTTPConnection(address, patient_fleet.port)
        connection.request("GET", "/live")
        assert connection.getresponse().status == 200
        connection.close()


def test_idle_connections_live_as_long_as_the_setting_says(patient_fleet: Fleet) -> None:
    patient_fleet.api("--keep-alive-timeout", "0.5")
    with connect(patient_fleet) as connection:
        connection.sendall(head("GET", "/live"))
        read_answer(connection)
        assert is_closed(connection)
