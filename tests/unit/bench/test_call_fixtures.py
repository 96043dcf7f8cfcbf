"""Fixtures of canitoolcall are replayed through the parsers."""

import json
from pathlib import Path

import pytest

from bench.fidelity.call_fixtures import main


def test_what_a_parser_finds_is_compared_with_what_it_should(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    fixture = {
        "family": "qwen3-hermes",
        "models": ["m"],
        "tools": [{"type": "function", "function": {"name": "now"}}],
        "raw_output": f"Hm.</think>{call}",
        "tags": [],
    }
    expected = {"content": None, "reasoning_content": "Hm.", "tool_calls": [{"name": "now", "arguments": {}}]}
    lines = [
        fixture | {"id": "right", "expected": expected},
        fixture | {"id": "wrong", "expected": expected | {"content": "x"}},
        fixture | {"id": "no call", "expected_error": {"reason": "", "accept": []}},
        fixture | {"id": "cut", "expected_error": {}, "raw_output": "<tool_call>", "tags": ["truncated"]},
        fixture | {"id": "other", "family": "glm"},
    ]
    folder = tmp_path / "qwen3-hermes"
    folder.mkdir()
    model = {"repo": "m", "default_generation_prompt": "<|im_start|>assistant\n<think>\n"}
    (folder / "family.json").write_text(json.dumps({"reference_models": [model]}))
    (folder / "basic.jsonl").write_text("\n".join(map(json.dumps, lines)))
    main(tmp_path)
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("different")] == [
        "different: wrong",
        "different: no call",
    ]
    assert "| qwen3-hermes | 2           | 2         | 0                    |" in printed
    assert "| glm          | 0           | 0         | 1                    |" in printed
