"""The worker's libraries see no locale of the user."""

import subprocess

from shared.runtime.processes import module_command


def test_libraries_of_the_worker_see_one_locale() -> None:
    code = "import locale, worker; print(locale.setlocale(locale.LC_CTYPE))"
    command = [*module_command("x")[:-2], "-c", code]
    env = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "C.UTF-8\n"
