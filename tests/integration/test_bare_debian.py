"""README's ``make run`` and ``make test`` on bare Debian systems, by a user without rights.

``make machines`` runs these tests: each takes some four minutes of CPU time.
"""

from collections.abc import Callable

import pytest

from tests.support.debian import SUITES, BareDebian
from tests.support.fleet import free_port

pytestmark = pytest.mark.bare

_CHAT = """
cd vinoqueue
make run ARGS='--port {port}' >up.log 2>&1 &
up=$!
until grep -q 'Ctrl-C ends it' up.log; do
    kill -0 $up || {{ cat up.log; exit 1; }}
    sleep .2
done
.venv/bin/vinoqueue chat --url http://127.0.0.1:{port} --temperature 0 'Name the capital of France.'
kill $up
wait $up
tail -1 up.log
"""


@pytest.mark.parametrize("suite", SUITES)
def test_make_run_serves_and_make_test_passes(suite: str, bare_debian: Callable[[str], BareDebian]) -> None:
    debian = bare_debian(suite)
    debian.put_checkout()
    assert "Paris" in debian.run(_CHAT.format(port=free_port()))
    debian.run("cd vinoqueue && make test ARGS='-n 2 -q tests/unit'")
