"""Command line options generated from the settings classes, and the variables that no setting has.

The field ``max_batch`` of a class in :mod:`shared.runtime.settings` defines ``--max-batch``, ``VINOQUEUE_MAX_BATCH``,
and their help text, validation and default. The flag takes precedence over the variable, and the variable over the
default.
"""

import logging
import os
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic import ByteSize, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from cli.base.output import echo
from shared.runtime import logs
from shared.runtime.settings import (
    ENV_PREFIX,
    REMOVED,
    SECRETS,
    Settings,
    UpSettings,
    file_variable,
    joined_reasons,
    variable,
)

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

COMPUTED = "found at start"
"""Shown in help and documentation for a default that depends on the machine."""

_METAVARS: dict[Any, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT", ByteSize: "SIZE"}
"""How help names a value of each type that settings have."""


def flag(name: str) -> str:
    """The command line flag of the settings field ``name``."""
    return "--" + name.replace("_", "-")


class SettingsCommand(click.Command):
    """A command whose options are the fields of a settings class. Its callback gets a validated instance.

    An invalid value is a usage error that names the flag, and the environment variable if the value came from there.
    """

    def __init__(self, name: str, kind: type[S], run: Callable[[S], int], **attributes: Any) -> None:
        """``run`` returns the exit code. ``attributes`` go to :class:`click.Command` (help, epilog...)."""
        self._kind = kind
        super().__init__(name, **attributes)

        def invoked(**values: Any) -> None:
            context = click.get_current_context()
            if context.invoked_subcommand is None:
                settings = build(kind, values)
                logs.configure(settings.log_level, as_json=settings.log_format == "json")
                check_variables(logger.warning)
                context.exit(run(settings))
            check_variables()
            for given in values:
                if context.get_parameter_source(given) is ParameterSource.COMMANDLINE:
                    raise click.UsageError(f"Write {flag(given)} after '{context.invoked_subcommand}'.")

        self.callback = invoked

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, which are made only for the command that runs."""
        self.params = self.params or [
            *(option(self._kind, field) for field in self._kind.model_fields),
            *map(_removed_option, REMOVED),
        ]
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. A flag of several values takes all words up to the next flag."""
        return super().parse_args(ctx, _gathered(args, {flag(name) for name in several(self._kind)}))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options grouped by the settings class that declares them, the most derived class first."""
        groups: dict[str, list[tuple[str, str]]] = {_title(owner): [] for owner in _owners(self._kind)}
        own: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            field = parameter.name in self._kind.model_fields
            (groups[_title(_owner(self._kind, str(parameter.name)))] if field else own).append(record)
        for title, records in [*groups.items(), ("Other", own)]:
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class SettingsGroup(SettingsCommand, click.Group):
    """A command with options as above that also has subcommands, which do not use these options."""

    def __init__(self, name: str, kind: type[S], run: Callable[[S], int], **attributes: Any) -> None:
        """As for :class:`SettingsCommand`. ``commands`` are the subcommands."""
        super().__init__(name, kind, run, invoke_without_command=True, subcommand_metavar="[COMMAND]", **attributes)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def option(kind: type[Settings], name: str) -> click.Option:
    """The option for the field ``name`` of ``kind``."""
    field = kind.model_fields[name]
    declared = flag(name)
    switch = field.annotation is bool
    computed = field.default_factory is not None
    return (_SecretOption if name in SECRETS else click.Option)(
        [f"{declared}/--no-{declared[2:]}" if switch else declared, name],
        type=_type(field, secret=name in SECRETS),
        metavar=_metavar(field),
        default=field.default_factory if computed else field.default,
        envvar=variable(name),
        show_envvar=True,
        show_default=COMPUTED if computed else field.default != "",
        help=field.description,
    )


def _removed_option(name: str) -> click.Option:
    """The hidden option of a setting that is gone; its use is a warning."""

    def warn_of(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            echo(f"Warning: {flag(name)} {_gone(name)}", err=True)

    switch = name == "vllm_metric_names"
    names = f"{flag(name)}/--no-{flag(name)[2:]}" if switch else flag(name)
    return click.Option([names], is_flag=switch, default=None, hidden=True, expose_value=False, callback=warn_of)


def _gone(name: str) -> str:
    return f"is no longer a setting and has no effect: {REMOVED[name]}."


def several(kind: type[Settings]) -> list[str]:
    """The fields of ``kind`` whose text is a list of values, separated by commas or spaces."""
    extras = {name: field.json_schema_extra for name, field in kind.model_fields.items()}
    return [name for name, extra in extras.items() if isinstance(extra, dict) and extra.get("several")]


def _gathered(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """``arguments`` with all words that follow one of ``flags`` joined by commas."""
    gathered: list[str] = []
    taking = False
    for argument in arguments:
        if argument.startswith("-"):
            taking = False
        elif taking and gathered[-1] not in flags:
            gathered[-1] += f",{argument}"
            continue
        gathered.append(argument)
        taking = taking or argument in flags
    return gathered


def build(kind: type[S], values: dict[str, Any]) -> S:
    """The settings of ``kind`` with ``values``. Raises :class:`click.UsageError` naming the flag of an invalid one."""
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        context = click.get_current_context(silent=True)
        from_environment = context and context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
        origin = f" (env var: '{variable(name)}')" if from_environment else ""
        raise click.UsageError(f"Invalid value for '{flag(name)}'{origin}: {joined_reasons(error.errors())}.") from None


class _SecretOption(click.Option):
    """An option whose environment variable holds the value, or with the suffix ``_FILE`` the path of a file with it."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the variable, or the content of the file without surrounding white space."""
        value = super().resolve_envvar_value(ctx)
        of_file = file_variable(str(self.name))
        path = os.environ.get(of_file)
        if not path:
            return value
        if value:
            raise click.UsageError(f"{variable(str(self.name))} and {of_file} are both set. Set one of them.")
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"The file that {of_file} names can't be read: {error}") from None
        if not value:
            raise click.UsageError(f"The file that {of_file} names is empty: {path}")
        return value


class _Setting(click.ParamType[Any]):
    """A value that pydantic validates as it validates the field of the settings class."""

    name = "setting"

    def __init__(self, field: FieldInfo, *, secret: bool) -> None:
        """An invalid value that is ``secret`` is not quoted."""
        self._field, self._secret = field, secret

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        adapter: TypeAdapter[Any] = TypeAdapter(
            Annotated[self._field.annotation, self._field],  # type: ignore[arg-type]
            config=ConfigDict(allow_inf_nan=False),
        )
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            quoted = "" if self._secret else f"{value!r}: "
            self.fail(f"{quoted}{joined_reasons(error.errors())}.", param, ctx)


def _type(field: FieldInfo, *, secret: bool) -> click.ParamType[Any]:
    if field.annotation is bool:
        return click.BOOL
    if get_origin(field.annotation) is Literal:
        return click.Choice(get_args(field.annotation))
    return _Setting(field, secret=secret)


def _metavar(field: FieldInfo) -> str | None:
    """Return the name of a value in help; None for switches and choices, which click names."""
    if field.annotation is bool or get_origin(field.annotation) is Literal:
        return None
    match get_args(field.annotation):
        case (words, number):
            return "|".join([*get_args(words), _METAVARS[FieldInfo.from_annotation(number).annotation]])
    return _METAVARS[field.annotation]


def _owners(kind: type[Settings]) -> list[type[Settings]]:
    return [owner for owner in kind.__mro__ if issubclass(owner, Settings)]


def _owner(kind: type[Settings], name: str) -> type[Settings]:
    return next(owner for owner in _owners(kind) if name in owner.__annotations__)


def _title(kind: type[Settings]) -> str:
    return (kind.__doc__ or kind.__name__).splitlines()[0].rstrip(".")


KNOWN = frozenset(
    {variable(name) for name in UpSettings.model_fields} | {file_variable(name) for name in SECRETS},
)
"""Every variable that some command reads; ``up`` has the settings of all."""


def check_variables(warn: Callable[[str], None] = lambda text: echo(f"Warning: {text}", err=True)) -> None:
    """Warn of each unknown variable; by default, print the warnings.

    They are removed from this process's environment, so that child processes do not repeat the warnings.
    """
    for name in sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in KNOWN):
        del os.environ[name]
        field = name.removeprefix(ENV_PREFIX).lower()
        what = _gone(field) if field in REMOVED else f"is not a setting and has no effect.{_suggestion(name)}"
        warn(f"{name} {what}")


def _suggestion(name: str) -> str:
    near = get_close_matches(name, KNOWN, n=1, cutoff=0.8)
    return f" Did you mean {near[0]}?" if near else ""
