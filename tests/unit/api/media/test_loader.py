"""The loader of a request's images: files by digest, and errors that name the content part."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from api.fairness import Holding, TenantBytes
from api.media.data_url import MediaError
from api.media.download import Downloads
from api.media.loader import MediaLoader
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import LOCAL, ChatRequest, Image, Message
from shared.runtime.settings import ApiSettings

CAT, DOG = b"cat", b"dog"


class FakeDownloads(Downloads):
    """Files by URL instead of the network."""

    def __init__(self, memory: int, **files: bytes) -> None:
        self._memory = TenantBytes(memory, full="Too many.")
        self.tenants: list[str] = []
        self._files = {f"https://host/{name}": file for name, file in files.items()}

    async def download(self, url: str, share: Holding) -> bytes:
        self.tenants.append(share.tenant)
        if url not in self._files:
            raise MediaError("the URL responded with status 404")
        share.add(len(self._files[url]))
        return self._files[url]


async def load(by: MediaLoader, request: ChatRequest) -> tuple[ChatRequest, dict[str, bytes]]:
    async with by.loaded(request, tenant="") as loaded:
        return loaded


def loader(
    local_path: Path | str = "", *, memory: int = 1000, registry: CollectorRegistry | None = None, **options: Any
) -> MediaLoader:
    limits = {"max_images": 3} | options
    settings = ApiSettings.model_construct(allowed_local_media_path=str(local_path), **limits)
    downloads = FakeDownloads(memory, cat=CAT, dog=DOG)
    return MediaLoader(downloads, settings, registry or CollectorRegistry(), max_image_bytes=10)


def request_with(*messages: tuple[str, ...]) -> ChatRequest:
    return ChatRequest(
        model="m",
        messages=tuple(
            Message(
                role="user",
                content="Look:",
                images=tuple(
                    Image(at=5, param=f"messages[{index}].content[{part}]", url=url)
                    for part, url in enumerate(urls, start=1)
                ),
            )
            for index, urls in enumerate(messages)
        ),
    )


def data_url(file: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(file).decode()


async def problem_of(request: ChatRequest, by: MediaLoader) -> Problem:
    with pytest.raises(RequestRefused) as refusal:
        await load(by, request)
    return refusal.value.problem


async def test_urls_become_digests() -> None:
    request = request_with((data_url(CAT), "https://host/dog"), (), ("https://host/cat",))
    loaded, files = await load(loader(), request)
    cat, dog = (hashlib.sha256(file).hexdigest() for file in (CAT, DOG))
    assert files == {cat: CAT, dog: DOG}
    assert loaded.images == (
        Image(at=5, param="messages[0].content[1]", digest=cat),
        Image(at=5, param="messages[0].content[2]", digest=dog),
        Image(at=5, param="messages[2].content[1]", digest=cat),
    )
    assert [message.content for message in loaded.messages] == ["Look:"] * 3


async def test_lines_of_batches_take_nothing_from_the_share_of_their_key() -> None:
    downloads = FakeDownloads(1000, cat=CAT)
    by = MediaLoader(downloads, ApiSettings(), CollectorRegistry())
    request = request_with(("https://host/cat",))
    for one in (request, msgspec.structs.replace(request, tier="batch")):
        async with by.loaded(one, tenant="key-1"):
            pass
    assert downloads.tenants == ["key-1", "batches of key-1"]


async def test_files_are_counted_by_source() -> None:
    registry = CollectorRegistry()
    by = loader(registry=registry)
    await load(by, request_with((data_url(CAT), "https://host/dog")))
    await problem_of(request_with(("https://host/none",)), by)

    def counted(name: str) -> list[float | None]:
        return [registry.get_sample_value(name, {"source": source}) for source in ("data", "download", "local")]

    assert counted("vinoqueue_image_load_seconds_count") == [1, 1, 0]
    assert counted("vinoqueue_image_bytes_total") == [len(CAT), len(DOG), 0]
    assert counted("vinoqueue_image_failures_total") == [0, 1, 0]


async def test_the_first_image_that_can_not_be_read_is_named() -> None:
    request = request_with((data_url(CAT),), (data_url(DOG), "https://host/none"), ("data:,",))
    problem = await problem_of(request, loader(max_images=9))
    assert (problem.kind, problem.param) == (ProblemKind.INVALID, "messages[1].content[2]")
    assert problem.message == "Invalid image: the URL responded with status 404."


async def test_images_beyond_the_limits_are_named() -> None:
    problem = await problem_of(request_with((data_url(CAT),) * 2, (data_url(DOG),) * 2), loader())
    assert problem.param == "messages[1].content[2]"
    assert "this request has 4, and the maximum is 3" in problem.message
    problem = await problem_of(request_with((data_url(CAT), data_url(bytes(11)))), loader())
    assert problem.param == "messages[0].content[2]"
    assert "maximum of 10 bytes" in problem.message


async def test_downloads_beyond_the_memory_for_them_are_refused() -> None:
    request = request_with((data_url(CAT), "https://host/dog", "https://host/cat"))
    with pytest.raises(RequestRefused) as refusal:
        await load(loader(memory=len(CAT + DOG) - 1), request)
    assert (refusal.value.problem.kind, refusal.value.problem.retry_after) == (ProblemKind.QUEUE_FULL, 1.0)
    await load(loader(memory=len(CAT + DOG)), request)


async def test_local_files_are_read_below_the_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "cat.png").write_bytes(CAT)
    (folder / "large.png").write_bytes(bytes(11))
    (tmp_path / "secret.png").write_bytes(DOG)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "inside.png").symlink_to(folder / "sub" / "cat.png")
    by = loader(folder)
    for name in ("sub/cat.png", "inside.png", "sub/../sub/cat.png"):
        _, files = await load(by, request_with((f"{LOCAL}{folder}/{name}",)))
        assert list(files.values()) == [CAT]
    for name in ("../secret.png", "link.png", "missing.png", "sub", "a\0b", "sub/cat.png/x"):
        assert "no such file" in (await problem_of(request_with((f"{LOCAL}{folder}/{name}",)), by)).message
    assert "no such file" in (await problem_of(request_with((f"{LOCAL}{tmp_path}/secret.png",)), by)).message
    assert "maximum of 10 bytes" in (await problem_of(request_with((f"{LOCAL}{folder}/large.png",)), by)).message


async def test_local_files_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(CAT)
    problem = await problem_of(request_with((f"{LOCAL}{tmp_path}/cat.png",)), loader())
    assert "--allowed-local-media-path" in problem.message
