"""Checks the ``VINOQUEUE_`` environment variables: deprecated names are replaced, unknown ones reported."""

import os
from difflib import get_close_matches

import click

from cli.options import file_variable, variable
from shared.runtime.settings import ENV_PREFIX, RENAMED, SECRETS, UpSettings

KNOWN = frozenset(
    {variable(name) for name in UpSettings.model_fields} | {file_variable(name) for name in SECRETS},
)
"""Every variable that some command reads; ``up`` has the settings of all."""

DEPRECATED = {variable(old): variable(new) for old, new in RENAMED.items()} | {
    file_variable(old): file_variable(new) for old, new in RENAMED.items() if new in SECRETS
}
"""Deprecated variables and the current ones."""


def check_variables() -> None:
    """Replace deprecated variables by the current ones, and print a warning for each deprecated or unknown one.

    A current variable takes precedence over its deprecated name. Reported variables are removed from this process's
    environment, so that child processes do not repeat the warnings.
    """
    for name in sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in KNOWN):
        value = os.environ.pop(name)
        if name in DEPRECATED:
            _replace(name, DEPRECATED[name], value)
        else:
            click.echo(f"Warning: {name} is not a setting and has no effect.{_suggestion(name)}", err=True)


def _replace(old: str, new: str, value: str) -> None:
    if os.environ.get(new):
        click.echo(f"Warning: {old} is deprecated and has no effect, because {new} is set.", err=True)
        return
    click.echo(f"Warning: {old} is deprecated. Use {new}.", err=True)
    os.environ[new] = value


def _suggestion(name: str) -> str:
    near = get_close_matches(name, [*KNOWN, *DEPRECATED], n=1, cutoff=0.8)
    return f" Did you mean {DEPRECATED.get(near[0], near[0])}?" if near else ""
