"""``vinoqueue completion`` and ``version``."""

import click
from click.shell_completion import get_completion_class

from cli.base.output import echo
from shared.runtime.version import VERSION

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_VINOQUEUE_COMPLETE"
"""Variable with which the script asks the command for completions."""


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    \b
    eval "$(vinoqueue completion bash)"                                     # in ~/.bashrc
    eval "$(vinoqueue completion zsh)"                                      # in ~/.zshrc
    vinoqueue completion fish > ~/.config/fish/completions/vinoqueue.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    echo(kind(ctx.find_root().command, {}, "vinoqueue", _VARIABLE).source())


@click.command()
def version() -> None:
    """Print the version of Vinoqueue."""
    echo(VERSION)
