"""Environment variables that look like settings and are none: most often a typo."""

import os
from difflib import get_close_matches

import click

from cli.options import file_variable, variable
from shared.runtime.settings import ENV_PREFIX, SECRETS, UpSettings

KNOWN = frozenset(
    {variable(name) for name in UpSettings.model_fields} | {file_variable(name) for name in SECRETS},
)
"""Every variable that some command reads; ``up`` has the settings of all."""


def warn_of_unknown_variables() -> None:
    """Print a line for each ``VINOQUEUE_`` variable that no command reads, with the nearest name.

    The variable is then removed from this process's environment, so that child processes don't repeat the warning.
    """
    for name in sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in KNOWN):
        near = get_close_matches(name, KNOWN, n=1, cutoff=0.8)
        hint = f" Did you mean {near[0]}?" if near else ""
        click.echo(f"Warning: {name} is not a setting and has no effect.{hint}", err=True)
        del os.environ[name]
