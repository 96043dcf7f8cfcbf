"""The templates of an IR folder are those that transformers would use."""

import json
from pathlib import Path
from typing import Any

import pytest

from worker.model.chat_template import OwnTemplates, own_templates

NAMED = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]


@pytest.mark.parametrize(
    ("files", "config", "expected"),
    [
        ({}, None, OwnTemplates()),
        ({"chat_template.jinja": "edited"}, "configured", OwnTemplates("edited", "", "chat_template.jinja")),
        ({}, "configured", OwnTemplates("configured", "", "tokenizer_config.json")),
        ({}, NAMED, OwnTemplates("plain", "with tools", "tokenizer_config.json")),
        (
            {"chat_template.jinja": "edited", "additional_chat_templates/tool_use.jinja": "edited tools"},
            NAMED,
            OwnTemplates("edited", "edited tools", "chat_template.jinja"),
        ),
        ({}, [{"name": "default"}, "tool_use", None], OwnTemplates()),
        ({}, 5, OwnTemplates()),
    ],
)
def test_files_have_the_order_of_transformers(
    tmp_path: Path, files: dict[str, str], config: Any, expected: OwnTemplates
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": config}), encoding="utf-8")
    assert own_templates(tmp_path) == expected


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_unreadable_files_count_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    assert own_templates(tmp_path).default == ""
    assert own_templates(tmp_path / "model.gguf") == OwnTemplates()
