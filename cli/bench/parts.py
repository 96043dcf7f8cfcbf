"""The command ``bench``: its subcommand ``load``, and the benchmarks of the repository by name."""

from importlib.util import find_spec

import click
from click.shell_completion import CompletionItem

from cli.bench.load import load

PARTS = {
    "overhead": "throughput of the service relative to the engine alone, with the default model",
    "capacity": "store cost of each operation, and the store load of large fleets",
    "prefix": "gain from prefix routing for prompts with a shared prefix",
    "batch": "throughput of a batch, and time to first token of other requests while it runs",
    "fairness": "a small schema and a small image of one key while another key floods the service",
    "fidelity": "accuracy of structured output compared with plain text and OpenVINO GenAI's own JSON schemas",
    "regressions": "machine-independent counts compared with their budgets",
    "embed": "vectors: the engine alone, peers in the environment --env, chats and queries meanwhile; --quick tries it",
    "forms": "the forms in which a MODEL, named next, can be served on this host, in two minutes",
    "start": "from 'up', and five other causes, to the first token; --against measures another build, too",
    "memory": "memory of 'up' and of a second worker, idle after one chat; --against measures another build, too",
    "peers": "the same load on llama.cpp's server, which is built first; only when named",
}
"""The parts of :mod:`bench.main` and what each measures. Repeated here because importing :mod:`bench.main` requires
the worker's dependencies."""


class _Bench(click.Group):
    """A group whose arguments are names of benchmarks unless the first one is a subcommand."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand, or else the command that runs benchmarks."""
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        if args[0] == "forms" and args[1:] and not args[1].startswith("-"):
            args = ["forms", "--model", *args[1:]]
        return "", _parts, args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the subcommands and benchmarks that begin with ``incomplete``."""
        named = [CompletionItem(name, help=what) for name, what in PARTS.items() if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *named]


@click.group(
    cls=_Bench,
    invoke_without_command=True,
    subcommand_metavar="[PARTS]... | forms MODEL | load [OPTIONS]",
    epilog="\b\nPARTS:\n" + "\n".join(f"  {name:<12} {what}" for name, what in PARTS.items()),
)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Run the benchmarks PARTS, or measure a server with 'load'.

    Without PARTS, most benchmarks run, which takes half an hour. They print tables and write bench/results/*.json.
    After PARTS, --runs N sets the number of alternating turns, and --concurrencies N,N,... the requests at a time of
    'overhead' and 'peers'. --against is another 'vinoqueue', or llama.cpp's 'llama-server', for 'start' and 'memory'.
    """
    if ctx.invoked_subcommand is None:
        _run((), {})


def _numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        numbers = tuple(map(int, value.split(",")))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"'{value}' is not a list of positive numbers")
    return numbers


@click.command("bench", add_help_option=False)
@click.argument("parts", nargs=-1, type=click.Choice(tuple(PARTS)), metavar="[PARTS]...")
@click.option("--model")
@click.option("--runs", type=click.IntRange(1))
@click.option("--concurrencies", callback=_numbers)
@click.option("--against", type=click.Path(exists=True, dir_okay=False))
@click.option("--env", type=click.Path(exists=True, file_okay=False, resolve_path=True))
@click.option("--quick", is_flag=True, default=None)
def _parts(parts: tuple[str, ...], **options: object) -> None:
    _run(parts, {name: value for name, value in options.items() if value is not None})


def _run(parts: tuple[str, ...], options: dict[str, object]) -> None:
    if find_spec("bench") is None:
        raise click.ClickException("These benchmarks run only from Vinoqueue's repository: 'make bench' there.")
    try:
        from bench.main import UnknownOption, run

        run(parts, **options)
    except UnknownOption as error:
        raise click.UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error


bench.add_command(load)
