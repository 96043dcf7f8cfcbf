"""Names of formats of tool calls and reasoning."""

import pytest

from shared.parsers.formats import AUTO, NONE, PARSERS, REASONING_FORMATS, TOOL_FORMATS, ParserKind
from worker.model.source import ModelError, check_parser


def test_every_name_means_a_format_and_every_format_has_its_own_name() -> None:
    for kind, formats in (("tool_parser", TOOL_FORMATS), ("reasoning_parser", REASONING_FORMATS)):
        meanings = PARSERS[kind]  # type: ignore[index]
        assert set(meanings.values()) == {AUTO, NONE, *formats}
        assert all(meanings[name] == name for name in formats)


@pytest.mark.parametrize(
    ("kind", "name", "meaning"),
    [
        ("tool_parser", "hermes3", "hermes"),
        ("tool_parser", "qwen3coder", "qwen3_coder"),
        ("tool_parser", "openai", "harmony"),
        ("tool_parser", "auto", "auto"),
        ("reasoning_parser", "qwen3", "think"),
        ("reasoning_parser", "none", "none"),
    ],
)
def test_names_of_other_servers_are_known(kind: ParserKind, name: str, meaning: str) -> None:
    assert check_parser(kind, name) == meaning


def test_an_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(
        ModelError, match=r"The tool parser 'x' is unknown\. Known are auto, none, .*hermes, .*qwen3coder"
    ):
        check_parser("tool_parser", "x")
