"""The catalogue file: what it may say, and how its errors are named."""

from pathlib import Path

import msgspec
import pytest

from shared.protocol.request import Sampling
from shared.runtime.settings import WorkerSettings
from worker.model.request_defaults import RequestDefaults
from worker.node.catalogue import ALWAYS, CatalogueError, read_catalogue

DEFAULTS = WorkerSettings()


def test_entries_have_names_sources_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[models.chat]\nsource = "default"\naliases = ["gpt-4o-mini"]\nkeep = "always"\nmax_batch = 4\n'
        '[models."org/small"]\nsource = "default"\nkeep = "1.5h"\nreplicas = [0, 2]\nmemory = "3GB"\n'
    )
    chat, small = read_catalogue(file, DEFAULTS)
    assert (chat.name, chat.source, chat.aliases, chat.keep_seconds) == ("chat", "default", ("gpt-4o-mini",), ALWAYS)
    assert (chat.least, chat.most, chat.settings) == (1, 1, {"max_batch": 4})
    assert (small.name, small.keep_seconds, small.least, small.most) == ("org/small", 5400.0, 0, 2)
    assert small.memory == 3_000_000_000
    assert chat.digest != small.digest


def test_an_entry_has_defaults_for_requests(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[models.a]\nsource = "default"\ntemperature = 0.6\ntop_k = 20\nmax_tokens = 100\nsystem = "Be brief."\n'
        'reasoning_effort = "none"\nchat_template_kwargs = {style = "old", thinking = true}\n'
    )
    (entry,) = read_catalogue(file, DEFAULTS)
    defaults = RequestDefaults.model_validate_json(msgspec.json.encode(entry.defaults))
    assert defaults.sampling == Sampling(temperature=0.6, top_k=20, max_tokens=100)
    # What is said in the template's own words has the last word.
    variables = {"reasoning_effort": "none", "enable_thinking": False, "thinking": True, "style": "old"}
    assert (defaults.system, defaults.template_kwargs) == ("Be brief.", variables)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "has no model"),
        ("[models.a\n", None, "at line 1"),
        ('\n[model.a]\nsource = "default"\n', 2, "'model' is unknown; a catalogue has only [models.NAME]"),
        ('[models.a]\nkeep = "1m"\n', 1, "models.a.source: field required"),
        (
            '[models.b]\nsource = "default"\n\n[models.a]\nsource = "default"\nkeep = "soon"\n',
            6,
            "models.a.keep: must be",
        ),
        ('[models.a]\nsource = "default"\nkeep = 0\n', 3, "models.a.keep: must be 'always', or a time such as '15m'"),
        ('[models.a]\nsource = "default"\ndevise = "GPU"\n', 3, "models.a.devise: is unknown (did you mean 'device'?)"),
        ('[models.a]\nsource = "default"\nmax_batch = 0\n', 3, "models.a.max_batch: input should be 'auto' or "),
        ('[models.a]\nsource = "default"\nmemory = 24\n', 3, "models.a.memory: 24 bytes are too few for a model"),
        (
            '[models.a]\nsource = "default"\ntool_parser = "x"\n',
            3,
            "models.a.tool_parser: The tool parser 'x' is unknown",
        ),
        (
            '[models.a]\nsource = "default"\ntemperature = 3\n',
            3,
            "models.a.temperature: input should be less than or equal",
        ),
        (
            '[models.a]\nsource = "default"\nmax_tokens = "9"\n',
            3,
            "models.a.max_tokens: input should be a valid integer",
        ),
        ('[models.a]\nsource = "default"\nchat_template_kwargs = {tools = 1}\n', 3, "'tools' is set by the service"),
        ('[models.a]\nsource = "default"\ntemperatur = 1\n', 3, "is unknown (did you mean 'temperature'?)"),
        ('[models.a]\nsource = "default"\nredis_url = "redis://x"\n', 3, "models.a.redis_url: is unknown"),
        ('[models.a]\nsource = "default"\nreplicas = [3, 2]\n', 3, "models.a.replicas: must be [LEAST, MOST]"),
        ('[models.a]\nsource = "/missing.gguf"\n', 2, "was not found"),
        ('[models."a b"]\nsource = "default"\n', 1, "can't be served"),
        ('[models.a]\nsource = "default"\n[models.b]\nsource = "default"\naliases = ["a"]\n', 5, "has the name 'a'"),
    ],
)
def test_an_error_is_named_with_its_line(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises(CatalogueError) as caught:
        read_catalogue(file, DEFAULTS)
    assert words in str(caught.value)
    assert line is None or f", line {line}: " in str(caught.value)


def test_a_setting_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[models.a]\nsource = "default"\nbatch_pause = 5\n')
    (found,) = read_catalogue(file, DEFAULTS)
    assert found.settings == {}
    assert "models.a.batch_pause has no effect any more: batch requests make room" in caplog.text


def test_a_missing_catalogue_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="can't be read"):
        read_catalogue(tmp_path / "none.toml", DEFAULTS)
