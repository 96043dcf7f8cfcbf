"""Entry point of the ``vinoqueue`` command.

Subcommands are imported lazily. This keeps ``--help`` fast, and each image runs the commands whose packages it has.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

from cli.base.output import printable_errors
from shared.runtime.version import VERSION


class _Entry(NamedTuple):
    """Location of a subcommand (``module:attribute``) and its summary in the overview."""

    target: str
    summary: str


SECTIONS: dict[str, dict[str, _Entry]] = {
    "Serve": {
        "up": _Entry("cli.serve.commands:up", "Start everything on this machine: store, worker and API."),
        "api": _Entry("cli.serve.commands:api", "Start one API replica."),
        "worker": _Entry("cli.serve.commands:worker", "Start one worker; drain and resume others."),
        "node": _Entry("cli.serve.commands:node", "Start a host that loads several models by demand."),
    },
    "Monitor": {
        "status": _Entry("cli.monitor.status:status", "Show workers, queues, API replicas and batches."),
        "health": _Entry("cli.monitor.health:health", "Check the API on this host."),
        "usage": _Entry("cli.monitor.usage:usage", "Show what API keys have used."),
        "bench": _Entry("cli.bench.parts:bench", "Run the benchmarks, or measure a server under load."),
    },
    "Use": {
        "chat": _Entry("cli.chat.terminal:chat", "Chat with a model in the terminal."),
        "batch": _Entry("cli.batch.commands:batch", "Submit batches of requests and download their results."),
    },
    "Models": {
        "model": _Entry("cli.manage.model:model", "List, download, remove, load and unload models."),
    },
    "Access": {
        "key": _Entry("cli.manage.key:key", "Create, list, revoke and rotate API keys."),
        "team": _Entry("cli.manage.team:team", "Create, list and archive teams of API keys."),
        "audit": _Entry("cli.manage.audit:audit", "Show who changed keys, teams, batches, workers and models."),
    },
    "Other": {
        "completion": _Entry("cli.shell:completion", "Print a shell script that completes commands and options."),
        "version": _Entry("cli.shell:version", "Print the version."),
    },
}
_ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
_ALIASES = {"ps": "status"}


class LazyGroup(click.Group):
    """A command group that imports a subcommand only when it is invoked."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments. Errors may quote them."""
        with printable_errors():
            return super().make_context(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands in the order of the overview."""
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _ENTRIES:
            return None
        module, attribute = _ENTRIES[cmd_name].target.split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand named by ``args[0]``. Raises :class:`click.UsageError` with the nearest name."""
        name = args[0]
        if name not in _ENTRIES | _ALIASES and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, _ENTRIES, n=1)
            ctx.fail(f"No such command '{name}'." + (f" Did you mean '{near[0]}'?" if near else ""))
        # It imports all settings, which --help does not need.
        from cli.base.options import SettingsCommand, check_variables

        found = super().resolve_command(ctx, args)
        if not isinstance(found[1], SettingsCommand):  # those log the warnings
            check_variables()
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand. An image has the packages of some commands only."""
        try:
            with printable_errors():
                return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] in ("api", "cli", "shared", "worker"):
                raise
            raise click.ClickException(
                f"This needs the Python package '{error.name}', which is not installed here. The API's image does not "
                "run workers, nor the worker's image the API."
            ) from None
        except UnicodeError as error:
            raise click.ClickException(
                f"An argument, a variable or the input has a character that can't be used there ({error}). Texts are "
                "UTF-8, and API keys ASCII."
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview without importing a subcommand."""
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every setting can also be an environment variable: --max-batch is VINOQUEUE_MAX_BATCH.",
)
@click.version_option(VERSION, message="%(version)s")
def main() -> None:
    """OpenAI-compatible chat completions on OpenVINO workers with a shared queue.

    \b
    Everything on one machine:  vinoqueue up
    Another worker node:        vinoqueue worker --redis-url redis://store:6379/0 --device GPU
    Workers and queues:         vinoqueue status
    """


if __name__ == "__main__":
    main(prog_name="vinoqueue")
