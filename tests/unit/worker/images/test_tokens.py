"""Tokens of images that only the engine knows are refused by name; acceptance tests compare the others with it."""

from pathlib import Path

import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import Image
from worker.images.tokens import ImageTokens


@pytest.mark.parametrize("config", ['{"model_type": "internvl_chat"}', '{"model_type": "qwen2_vl"}', "[", "[]", None])
def test_unknown_images_are_refused_by_name(config: str | None, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(RequestRefused, match=r"not known before a '.*' model has read them") as refused:
        ImageTokens(tmp_path).of([Image(url="", param="messages[0]")], [(8, 8)])
    assert refused.value.problem.param == "messages[0]"
