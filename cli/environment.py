"""Reports ``VINOQUEUE_`` environment variables that are not settings."""

import os
from difflib import get_close_matches

import click

from shared.runtime.settings import ENV_PREFIX, SECRETS, UpSettings, file_variable, variable

KNOWN = frozenset(
    {variable(name) for name in UpSettings.model_fields} | {file_variable(name) for name in SECRETS},
)
"""Every variable that some command reads; ``up`` has the settings of all."""


def check_variables() -> None:
    """Print a warning for each unknown variable.

    They are removed from this process's environment, so that child processes do not repeat the warnings.
    """
    for name in sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in KNOWN):
        del os.environ[name]
        click.echo(f"Warning: {name} is not a setting and has no effect.{_suggestion(name)}", err=True)


def _suggestion(name: str) -> str:
    near = get_close_matches(name, KNOWN, n=1, cutoff=0.8)
    return f" Did you mean {near[0]}?" if near else ""
