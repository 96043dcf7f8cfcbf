"""A chat template from a file of the operator's."""

import re
from pathlib import Path

import msgspec
import pytest

from shared.runtime.settings import EngineSettings
from worker.model.chat_template import read_template
from worker.model.source import ModelError
from worker.openvino.load import fingerprint_of
from worker.openvino.options import OpenVINOOptions


def test_no_file_is_no_template() -> None:
    assert read_template("") == ""


def test_a_files_text_is_the_template(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages[0].content }} é\n", encoding="utf-8")
    assert read_template(str(file)) == "{{ messages[0].content }} é\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "can't be read"), (b"\xff\xfe", "can't be read"), (b" \n", "is empty"), (b"x" * 70_000, "larger than")],
)
def test_a_file_that_can_not_be_used_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "chat.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=f"{re.escape(str(file))} .*{reason}"):
        read_template(str(file))


def test_a_template_is_part_of_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model.gguf"
    model.write_bytes(b"weights")

    def fingerprint(template: str) -> str:
        options = OpenVINOOptions.from_settings(
            EngineSettings(), path=str(model), context_length=64, chat_template=template
        )
        return fingerprint_of(
            model, msgspec.json.decode(msgspec.json.encode(options), type=OpenVINOOptions), converted=False
        )

    assert len({fingerprint(template) for template in ("", "{{ a }}", "{{ b }}", "{{ a }}")}) == 3
