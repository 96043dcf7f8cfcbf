"""The kind of a draft model, by its files."""

from functools import cache
from pathlib import Path
from typing import Literal

from worker.engine.protocol import EngineLoadError

_REMEDY = "give --draft-model a language model with the same vocabulary, or an EAGLE-3 head"


@cache
def draft_kind(folder: str) -> Literal["draft", "eagle3"]:
    """Return whether the IR in ``folder`` is a language model, or an EAGLE-3 head, as optimum-intel marks it.

    Raises :class:`EngineLoadError` if there is none, or if it is of a kind whose limits in OpenVINO GenAI 2026.4 are
    not those of a server: both refuse requests that sample, and DFlash all but one at a time.
    """
    graph = Path(folder) / "openvino_model.xml"
    if not graph.is_file() and not graph.with_stem("openvino_mtp_model").is_file():
        raise EngineLoadError(f"there is no draft model at {folder}: {_REMEDY}, as OpenVINO IR folder")
    text = graph.read_text("utf-8") if graph.is_file() else ""
    if '<dflash_mode value="True"' in text:
        raise EngineLoadError(f"a DFlash draft model serves one request at a time, without sampling: {_REMEDY}")
    if not text or '"full_attention_key"' in text or '<mtp_mode value="True"' in text:
        raise EngineLoadError(f"a draft model for multi-token prediction (MTP) serves no sampling: {_REMEDY}")
    return "eagle3" if '<eagle3_mode value="True"' in text else "draft"
