"""What the registry says while a worker finds its model."""

from pathlib import Path

from tests.support.eventually import eventually
from worker.engine.handle import CurrentEngine
from worker.model.huggingface import Download
from worker.served_model import progress


async def test_the_stage_says_how_much_of_a_download_has_arrived(tmp_path: Path) -> None:
    engine = CurrentEngine(slots=0)
    (tmp_path / "old").write_bytes(b"from an earlier download")
    begun = Download(tmp_path, size=3 * 10**9, present=24)
    with (tmp_path / "new").open("wb") as arriving:
        arriving.truncate(10**9)
    async with progress(engine) as on_download:
        on_download(begun)
        await eventually(lambda: engine.stage.endswith("1.00 of 3.00 GB downloaded"))
