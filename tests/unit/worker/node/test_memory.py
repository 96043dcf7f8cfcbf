"""What is remembered of the memory that models take."""

from pathlib import Path

from shared.runtime.settings import NodeSettings
from tests.support.paths import MODELS
from worker.node.memory import Measurement, Measurements, expected

MEASURED = Measurement(memory=1, load_seconds=1.0)


def test_a_measurement_holds_for_the_settings_of_the_model_and_its_engine(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    Measurements(file).put(NodeSettings(model="a=default", device="CPU", drain=1.0), MEASURED)
    again = Measurements(file)
    assert again.get(NodeSettings(model="a=default", device="CPU", drain=2.0)) == MEASURED
    assert again.get(NodeSettings(model="a=default", device="GPU", drain=1.0)) is None
    assert again.get(NodeSettings(model="b=default", device="CPU", drain=1.0)) is None


def test_files_tell_the_properties_of_a_model_before_its_first_load() -> None:
    found = expected(str(MODELS / "qwen2-byte-level-bpe"), max_context=100)
    assert (found and (found.context_length, found.modalities)) == (100, ("text",))
    found = expected(str(MODELS / "llava-random"), max_context=100)
    assert (found and found.modalities) == ("text", "image")
    assert expected("/not/here.gguf", max_context=0) is None
