"""Settings become flags and environment variables; invalid values and unknown variables are reported."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pydantic import Field, PositiveFloat

from cli.base.options import SettingsCommand, flag
from cli.main import LazyGroup, main
from shared.runtime.settings import (
    REMOVED,
    ApiSettings,
    NodeSettings,
    Settings,
    UpSettings,
    WorkerSettings,
    environment,
    variable,
)
from shared.runtime.version import VERSION
from tests.support.paths import ROOT
from tools.docs.settings_table import page

SETTINGS_PAGE = ROOT / "docs" / "settings.md"


class Run:
    """A command made from a settings class, and the settings that its callback got."""

    def __init__(self, kind: type[Settings]) -> None:
        self.settings: Any = None
        self.command = SettingsCommand("try", kind, self._keep)

    def __call__(self, *arguments: str, **environment: str) -> str:
        outcome = CliRunner().invoke(self.command, arguments, env=environment)
        self.exit_code = outcome.exit_code
        return outcome.output

    def _keep(self, settings: Settings) -> int:
        self.settings = settings
        return 7


def test_defaults_are_those_of_the_class() -> None:
    run = Run(WorkerSettings)
    run()
    assert run.settings == WorkerSettings()


def test_the_callbacks_result_is_the_exit_code() -> None:
    run = Run(ApiSettings)
    run()
    assert run.exit_code == 7


def test_a_flag_beats_the_variable_and_the_variable_the_default() -> None:
    run = Run(WorkerSettings)
    run("--max-batch", "3", VINOQUEUE_MAX_BATCH="5", VINOQUEUE_CACHE_SIZE="2", VINOQUEUE_PREFIX_CACHING="false")
    assert (run.settings.max_batch, run.settings.cache_size, run.settings.prefix_caching) == (3, 2, False)


@pytest.mark.parametrize(("value", "meaning"), [("auto", "auto"), ("0", 0), ("12", 12)])
def test_a_number_may_have_a_word_in_its_place(value: str, meaning: object) -> None:
    run = Run(WorkerSettings)
    run("--cache-size", value)
    assert run.settings.cache_size == meaning


def test_the_batch_is_chosen_unless_it_is_set() -> None:
    run = Run(WorkerSettings)
    run()
    assert run.settings.max_batch == "auto"
    run(VINOQUEUE_MAX_BATCH="auto")
    assert run.settings.max_batch == "auto"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--served-model-name", "a", "b/c", "--max-batch", "3"),
        ("--max-batch", "3", "--served-model-name", "a,b/c"),
        ("--max-batch", "3", "--served-model-name=a b/c a"),
    ],
)
def test_a_flag_may_take_several_names(arguments: tuple[str, ...]) -> None:
    run = Run(WorkerSettings)
    run(*arguments, VINOQUEUE_SERVED_MODEL_NAME="not these")
    assert (run.settings.served_names, run.settings.max_batch) == (("a", "b/c"), 3)
    run(VINOQUEUE_SERVED_MODEL_NAME="a, b/c")
    assert run.settings.served_names == ("a", "b/c")


def test_a_switch_has_a_flag_for_each_way() -> None:
    run = Run(WorkerSettings)
    run("--no-prefix-caching", VINOQUEUE_PREFIX_CACHING="true")
    assert run.settings.prefix_caching is False
    run("--prefix-caching", VINOQUEUE_PREFIX_CACHING="false")
    assert run.settings.prefix_caching is True


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--max-batch", "0"),
        ("--max-batch", "1.5"),
        ("--lease", "0"),
        ("--lease", "nan"),
        ("--lease", "inf"),
        ("--cache-size", "-1"),
        ("--cache-size", "much"),
        ("--prefill-tokens", "0"),
        ("--plugin-config", "INFERENCE_NUM_THREADS=1"),
        ("--plugin-config", "[1]"),
        ("--plugin-config", '{"A": {"B": 1}}'),
        ("--engine", "magic"),
        ("--log-level", "loud"),
        ("--prefix-caching", "maybe"),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_flag_and_variable(flag: str, value: str) -> None:
    run = Run(WorkerSettings)
    variable = "VINOQUEUE_" + flag[2:].upper().replace("-", "_")
    output = run(**{variable: value})
    assert run.exit_code == 2
    assert flag in output
    assert variable in output
    assert run.settings is None


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_is_within_bounds(port: str) -> None:
    run = Run(ApiSettings)
    assert "--port" in run("--port", port)
    assert run.exit_code == 2


def test_what_only_the_class_itself_checks_is_a_usage_error_too() -> None:
    class Odd(Settings):
        """A class with a rule of its own."""

        lease: PositiveFloat = Field(2.0, description="Seconds.")

        def model_post_init(self, context: object) -> None:
            if self.lease == 13:
                raise ValueError("unlucky")

    run = Run(Odd)
    assert "unlucky" in run("--lease", "13")
    assert run.exit_code == 2


@pytest.mark.parametrize("kind", [ApiSettings, WorkerSettings, UpSettings])
def test_help_lists_every_flag_with_its_variable_and_meaning(kind: type[Settings]) -> None:
    text = " ".join(Run(kind)("--help").split()).replace("- ", "-")
    for name, field in kind.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert f"VINOQUEUE_{name.upper()}" in text
        assert field.description
        assert field.description.split()[0] in text


def test_every_command_of_the_overview_exists() -> None:
    assert isinstance(main, LazyGroup)
    context = click.Context(main)
    overview = CliRunner().invoke(main, ["--help"]).output
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()
        assert f"\n  {name} " in overview


def test_the_settings_page_is_current() -> None:
    assert SETTINGS_PAGE.read_text(encoding="utf-8") == page(), "run 'make docs'"


def test_the_settings_page_has_every_setting_with_its_description() -> None:
    text = page()
    for kind in (ApiSettings, WorkerSettings, UpSettings):
        for name, field in kind.model_fields.items():
            rows = [
                line for line in text.splitlines() if line.startswith("|") and f"`VINOQUEUE_{name.upper()}`" in line
            ]
            assert any(line.endswith(f"| {field.description} |") for line in rows)


@pytest.mark.parametrize("kind", [ApiSettings, WorkerSettings, UpSettings])
def test_a_description_is_one_sentence(kind: type[Settings]) -> None:
    for name, field in kind.model_fields.items():
        description = field.description or ""
        assert description.endswith("."), name
        assert ". " not in description, name


@pytest.mark.parametrize(("kind", "name"), [(ApiSettings, "api_keys"), (WorkerSettings, "redis_url")])
def test_a_secret_may_be_in_a_file(kind: type[Settings], name: str, tmp_path: Path) -> None:
    run, variable = Run(kind), f"VINOQUEUE_{name.upper()}"
    file = tmp_path / "secret"
    file.write_text("unix:///secret\n")
    run(**{f"{variable}_FILE": str(file)})
    assert getattr(run.settings, name) == "unix:///secret"
    run(f"--{name.replace('_', '-')}", "redis://flag", **{f"{variable}_FILE": str(file)})
    assert getattr(run.settings, name) == "redis://flag"


@pytest.mark.parametrize("content", ["", "\n", b"\xff\xfe", None])
def test_a_secret_file_without_a_secret_is_a_usage_error(content: str | bytes | None, tmp_path: Path) -> None:
    run, file = Run(ApiSettings), tmp_path / "secret"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    assert "VINOQUEUE_API_KEYS_FILE" in run(VINOQUEUE_API_KEYS_FILE=str(file))
    assert (run.exit_code, run.settings) == (2, None)


def test_a_secret_and_its_file_are_exclusive(tmp_path: Path) -> None:
    run, file = Run(ApiSettings), tmp_path / "secret"
    file.write_text("from-file")
    output = run(VINOQUEUE_API_KEYS="from-variable", VINOQUEUE_API_KEYS_FILE=str(file))
    assert "both set" in output
    assert "from-" not in output
    assert run.exit_code == 2


def test_up_gives_its_children_the_value_of_a_secret_not_its_file(tmp_path: Path) -> None:
    run, file = Run(UpSettings), tmp_path / "secret"
    file.write_text("from-file")
    run(VINOQUEUE_API_KEYS_FILE=str(file))
    child = Run(ApiSettings)
    child(**{"VINOQUEUE_API_KEYS_FILE": str(file)} | environment(run.settings, ApiSettings))
    assert child.settings.api_keys == "from-file"


def test_up_refuses_to_require_keys_where_there_can_be_none() -> None:
    outcome = CliRunner().invoke(main, ["up", "--port", "0", "--require-keys"])
    assert outcome.exit_code == 1
    assert "there is no API key" in outcome.stderr


def test_up_has_every_setting() -> None:
    assert {*ApiSettings.model_fields, *NodeSettings.model_fields} == UpSettings.model_fields.keys()


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("VINOQUEUE_PROT", "VINOQUEUE_PORT"),
        ("VINOQUEUE_REDIS_ULR", "VINOQUEUE_REDIS_URL"),
        ("VINOQUEUE_REQUIRE_KEY", "VINOQUEUE_REQUIRE_KEYS"),
        ("VINOQUEUE_APIKEYS_FILE", "VINOQUEUE_API_KEYS_FILE"),
    ],
)
def test_a_typo_in_a_variable_is_reported_with_the_nearest_name(typo: str, meant: str) -> None:
    outcome = CliRunner().invoke(main, ["version"], env={typo: "1"})
    assert outcome.exit_code == 0
    assert outcome.stderr == f"Warning: {typo} is not a setting and has no effect. Did you mean {meant}?\n"


def test_an_unknown_variable_unlike_any_setting_is_reported_without_a_guess() -> None:
    outcome = CliRunner().invoke(main, ["version"], env={"VINOQUEUE_COLOUR_SCHEME": "1"})
    assert outcome.stderr == "Warning: VINOQUEUE_COLOUR_SCHEME is not a setting and has no effect.\n"


@pytest.mark.parametrize("name", REMOVED)
def test_a_setting_that_is_gone_is_a_warning_that_says_what_applies(name: str) -> None:
    assert name not in UpSettings.model_fields
    outcome = CliRunner().invoke(main, ["version"], env={variable(name): "1"})
    gone = f"is no longer a setting and has no effect: {REMOVED[name]}.\n"
    assert outcome.stderr == f"Warning: {variable(name)} {gone}"
    run = Run(WorkerSettings)
    assert run(flag(name), *(() if name == "vllm_metric_names" else ("1",))) == f"Warning: {flag(name)} {gone}"
    assert run.settings == WorkerSettings()


def test_every_setting_is_a_known_variable() -> None:
    environment = dict.fromkeys((f"VINOQUEUE_{name.upper()}" for name in UpSettings.model_fields), "")
    outcome = CliRunner().invoke(main, ["version"], env=environment | {"VINOQUEUE_API_KEYS_FILE": ""})
    assert (outcome.exit_code, outcome.stderr) == (0, "")


@pytest.mark.parametrize(("typo", "meant"), [("stauts", "status"), ("worke", "worker"), ("keys", "key")])
def test_a_typo_in_a_command_is_reported_with_the_nearest_name(typo: str, meant: str) -> None:
    outcome = CliRunner().invoke(main, [typo])
    assert outcome.exit_code == 2
    assert f"No such command '{typo}'. Did you mean '{meant}'?" in outcome.stderr


def test_an_unknown_command_unlike_any_other_is_reported_without_a_guess() -> None:
    outcome = CliRunner().invoke(main, ["xyzzy"])
    assert outcome.exit_code == 2
    assert outcome.stderr.endswith("No such command 'xyzzy'.\n")


def test_the_version_is_that_of_the_package() -> None:
    outcomes = [CliRunner().invoke(main, arguments).output for arguments in (["--version"], ["version"])]
    assert outcomes == [f"{VERSION}\n"] * 2


def test_ps_is_another_name_of_status() -> None:
    assert (
        CliRunner().invoke(main, ["ps", "--help"]).output.splitlines()[2:]
        == (CliRunner().invoke(main, ["status", "--help"]).output.splitlines()[2:])
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell], prog_name="vinoqueue")
    assert (script.exit_code, "_VINOQUEUE_COMPLETE" in script.output) == (0, True)
    asked = {"_VINOQUEUE_COMPLETE": "bash_complete", "COMP_WORDS": "vinoqueue wor", "COMP_CWORD": "1"}
    assert "worker" in CliRunner().invoke(main, [], prog_name="vinoqueue", env=asked).output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("up", "--models", "models.toml", "--model", "default"), "--model has no effect with --models: the catalogue"),
        (("node", "--models", "models.toml", "--worker-id", "w"), "--worker-id has no effect with --models"),
        (("node", "--memory", "24"), "24 bytes are too few for a model; give the unit, as in 24GB"),
        (("up", "--memory", "4GB"), "--memory has no effect without --models."),
    ],
)
def test_an_option_that_a_catalogue_replaces_or_needs_is_refused(arguments: tuple[str, ...], why: str) -> None:
    outcome = CliRunner().invoke(main, [*arguments])
    assert (outcome.exit_code, why in outcome.output) == (2, True)
