"""What is remembered of the memory that models take."""

from pathlib import Path

from shared.runtime.settings import NodeSettings
from worker.node.memory import Measurement, Measurements

MEASURED = Measurement(memory=1, load_seconds=1.0)


def test_a_measurement_holds_for_the_settings_of_the_model_and_its_engine(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    Measurements(file).put(NodeSettings(model="a=default", device="CPU", drain=1.0), MEASURED)
    again = Measurements(file)
    assert again.get(NodeSettings(model="a=default", device="CPU", drain=2.0)) == MEASURED
    assert again.get(NodeSettings(model="a=default", device="GPU", drain=1.0)) is None
    assert again.get(NodeSettings(model="b=default", device="CPU", drain=1.0)) is None
