"""What separate Python processes import, which packages they work without, and what a child does not repeat."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bench as benchmarks

TEST_TOOLS = ("anthropic", "fakeredis", "hypothesis", "openai", "pytest")


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("--help", ("pydantic", "redis", "openvino", "quart")),
        ("api --help", ("openvino", "worker.main", "openvino_genai")),
        ("worker --help", ("quart", "api.main", "openvino")),
    ],
)
def test_a_command_imports_no_foreign_package(command: str, foreign: tuple[str, ...]) -> None:
    program = (
        "import sys; from cli.main import main; main(sys.argv[1:], standalone_mode=False); "
        f"print('FOUND', [name for name in {foreign!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *command.split()], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "FOUND []"


def test_benchmarks_need_no_test_tools() -> None:
    """`make bench` installs none."""
    files = Path(benchmarks.__file__).parent.glob("[a-z]*.py")
    names = sorted(f"bench.{file.stem}" for file in files)
    code = (
        f"import importlib, sys; sys.modules |= dict.fromkeys({TEST_TOOLS!r})\n"
        f"for name in {names!r}: importlib.import_module(name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_cryptography_of_a_token_is_imported_when_one_is_read() -> None:
    code = (
        "import sys, cli.main, worker.main, jwt; print('cryptography.x509' in sys.modules);"
        "print(jwt.encode.__name__, 'cryptography.x509' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nencode True\n"


def test_opentelemetry_is_not_imported_while_tracing_is_off() -> None:
    code = "import api.main, worker.main, sys; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("command", "package"), [("api", "uvicorn"), ("model list", "huggingface_hub")])
def test_a_command_names_the_package_that_an_image_does_not_have(command: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom cli.main import main\nmain(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: This needs the Python package '{package}', which is not installed here.")


def test_a_child_process_does_not_repeat_the_warning() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from cli.main import main\n"
        "main(['version'], standalone_mode=False)\n"
        "subprocess.run([sys.executable, '-m', 'cli.main', 'version'], check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"VINOQUEUE_PROT": "1"},
    )
    assert done.stderr.count("VINOQUEUE_PROT") == 1


@pytest.mark.parametrize(
    ("entry_points", "foreign"),
    [
        (
            ("worker.engine.child", "worker.images.child", "worker.prompt.child", "worker.model.files"),
            {"arq", "asyncio", "click", "pydantic", "redis", "uvloop"},
        ),
        (
            ("worker.openvino.engine", "worker.openvino.grammar_profiler", "worker.openvino.prompt_maker"),
            {"arq", "asyncio", "click", "pydantic", "redis", "uvloop"},
        ),
        (("cli.main", "cli.serve.commands", "worker.main"), {"api", "jinja2", "numpy", "openvino", "PIL", "quart"}),
        (("cli.main", "cli.serve.commands", "api.main"), {"numpy", "openvino", "PIL", "tokenizers", "worker"}),
    ],
)
def test_supervisor_and_subprocesses_import_no_libraries_of_the_other(
    entry_points: tuple[str, ...], foreign: set[str]
) -> None:
    program = f"import sys, {', '.join(entry_points)}; print({foreign!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("model list", 0, "default"),
        ("worker --model ~/x.gguf", 1, "The model source '~/x.gguf' was not found"),
        ("node --models /dev/null", 1, "/dev/null"),
        ("chat --url http://127.0.0.1:1 x", 1, "127.0.0.1:1"),
    ],
)
def test_a_user_without_a_name_and_a_home_gets_no_traceback(command: str, code: int, said: str) -> None:
    nobody = "import pwd\ndef nobody(number): raise KeyError(number)\npwd.getpwuid = nobody\n"
    program = f"{nobody}from cli.main import main\nmain()"
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()],
        capture_output=True,
        text=True,
        check=False,
        env=clean | {"VINOQUEUE_REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
