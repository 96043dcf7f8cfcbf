"""Decoding of image files: what is read looks as it should, and what is not is refused by name."""

import io
import struct
import zlib
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray
from PIL import Image

import worker.images.decoder
from worker.images.decoder import ImageDecoder, ImageError
from worker.images.messages import DecodedImage

RED, GREEN, BLUE, YELLOW = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)
FILE_PIXELS = 1 << 20
PIXELS = 1 << 16
NUMBERS = count()

Pixels = NDArray[numpy.uint8]


def decoder(**fields: int) -> ImageDecoder:
    return ImageDecoder(**{"file_pixels": FILE_PIXELS, **fields})


def decode(file: bytes, *, low: bool = False, pixels: int = PIXELS, **fields: int) -> Pixels:
    return array(decoder(**fields).decode(file, key=str(next(NUMBERS)), low=low, pixels=pixels))


def array(image: DecodedImage) -> Pixels:
    return numpy.frombuffer(image.pixels, numpy.uint8).reshape(image.height, image.width, 3)


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def corners(width: int = 64, height: int = 32) -> Image.Image:
    """Red and green above, blue and yellow below."""
    pixels = numpy.zeros((height, width, 3), numpy.uint8)
    pixels[: height // 2, : width // 2] = RED
    pixels[: height // 2, width // 2 :] = GREEN
    pixels[height // 2 :, : width // 2] = BLUE
    pixels[height // 2 :, width // 2 :] = YELLOW
    return Image.fromarray(pixels)


def colours(pixels: Pixels) -> tuple[tuple[int, ...], ...]:
    """The colours in the middle of the corners: top left, top right, bottom left, bottom right."""
    height, width, _ = pixels.shape
    places = [(y * height // 4, x * width // 4) for y in (1, 3) for x in (1, 3)]
    return tuple(tuple(int(value) for value in pixels[place]) for place in places)


def near(pixels: Pixels, *expected: tuple[int, int, int]) -> bool:
    return bool(numpy.abs(numpy.array(colours(pixels)) - numpy.array(expected)).max() < 12)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(more) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("PNG", {}),
        ("JPEG", {"quality": 95}),
        ("JPEG", {"quality": 95, "progressive": True}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"quality": 95}),
        ("GIF", {}),
    ],
)
def test_each_format_is_read(form: str, options: dict[str, Any]) -> None:
    pixels = decode(saved(corners(), form, **options))
    assert pixels.shape == (32, 64, 3)
    assert near(pixels, RED, GREEN, BLUE, YELLOW)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16"])
def test_each_mode_becomes_rgb(mode: str) -> None:
    grey = Image.new("L", (8, 8), 255)
    image = Image.fromarray(numpy.full((8, 8), 65535, numpy.uint16)) if mode == "I;16" else grey.convert(mode)
    pixels = decode(saved(image, "JPEG" if mode == "CMYK" else "PNG"))
    assert pixels.shape == (8, 8, 3)
    assert int(pixels.min()) > 250


def test_sixteen_bits_are_scaled() -> None:
    values = numpy.array([[0, 0x4000, 0x8000, 0xFFFF]], numpy.uint16)
    assert decode(saved(Image.fromarray(values), "PNG"))[0, :, 0].tolist() == [0, 0x40, 0x80, 0xFF]
    rows = b"\0" + struct.pack(">6H", 0xFFFF, 0x8000, 0, 0, 0x4000, 0xC000)
    assert decode(png(2, 1, 16, 2, rows)).tolist() == [[[0xFF, 0x80, 0], [0, 0x40, 0xC0]]]
    rows = b"\0" + struct.pack(">4H", 0, 0, 0, 0x8000)
    assert decode(png(1, 1, 16, 6, rows))[0, 0, 0] in (126, 127, 128)


def test_cmyk_keeps_its_colours() -> None:
    pixels = decode(saved(corners().convert("CMYK"), "JPEG", quality=95))
    assert near(pixels, RED, GREEN, BLUE, YELLOW)


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_transparency_is_on_white(form: str) -> None:
    image = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (4, 0, 8, 8))
    options = {"lossless": True, "exact": True} if form == "WEBP" else {}
    pixels = decode(saved(image, form, **options))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 7].tolist() == [0, 0, 255]
    half = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert decode(saved(half, "PNG"))[0, 0, 0] in (126, 127, 128)


def test_a_transparent_palette_entry_is_white() -> None:
    image = corners().convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    first = image.getpixel((0, 0))
    for form in ("PNG", "GIF"):
        assert near(decode(saved(image, form, transparency=first)), (255, 255, 255), GREEN, BLUE, YELLOW)


def test_a_transparent_colour_without_alpha_is_white() -> None:
    rows = b"\0" + bytes((255, 0, 0, 0, 255, 0))
    transparent = chunk(b"tRNS", struct.pack(">3H", 255, 0, 0))
    assert decode(png(2, 1, 8, 2, rows, transparent)).tolist() == [[[255, 255, 255], [0, 255, 0]]]


UPRIGHT = {
    1: (RED, GREEN, BLUE, YELLOW),
    2: (GREEN, RED, YELLOW, BLUE),
    3: (YELLOW, BLUE, GREEN, RED),
    4: (BLUE, YELLOW, RED, GREEN),
    5: (RED, BLUE, GREEN, YELLOW),
    6: (BLUE, RED, YELLOW, GREEN),
    7: (YELLOW, GREEN, BLUE, RED),
    8: (GREEN, YELLOW, RED, BLUE),
}
"""How a stored picture of four corners is shown, by its orientation (CIPA DC-008, table 5)."""


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_orientation_is_honoured(orientation: int, form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if form == "WEBP" else {"quality": 95} if form == "JPEG" else {}
    pixels = decode(saved(corners(), form, exif=exif, **options))
    assert pixels.shape == ((64, 32, 3) if orientation > 4 else (32, 64, 3))
    assert near(pixels, *UPRIGHT[orientation])


@pytest.mark.parametrize("exif", [b"Exif\0\0nonsense", b"Exif\0\0II*\0\xff\xff\xff\xff", b""])
def test_damaged_metadata_does_not_matter(exif: bytes) -> None:
    assert near(decode(saved(corners(), "JPEG", quality=95, exif=exif)), RED, GREEN, BLUE, YELLOW)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_unknown_orientations_are_upright(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert near(decode(saved(corners(), "JPEG", quality=95, exif=exif)), RED, GREEN, BLUE, YELLOW)


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
@pytest.mark.parametrize("size", [(1000, 600), (600, 1000), (257, 256), (2000, 40)])
def test_large_images_are_made_smaller(size: tuple[int, int], form: str) -> None:
    pixels = decode(saved(corners(*size), form))
    height, width, _ = pixels.shape
    assert height * width <= PIXELS
    assert height * width > 0.9 * min(PIXELS, size[0] * size[1])
    assert width / height == pytest.approx(size[0] / size[1], rel=0.2)
    assert near(pixels, RED, GREEN, BLUE, YELLOW)


def test_small_images_keep_their_size() -> None:
    assert decode(saved(corners(256, 256), "PNG")).shape == (256, 256, 3)
    assert decode(saved(corners(1, 1), "PNG")).shape == (1, 1, 3)


def test_low_detail_limits_the_longest_side() -> None:
    file = saved(corners(1024, 256), "PNG")
    assert decode(file, low=True, pixels=FILE_PIXELS).shape == (128, 512, 3)
    assert decode(file, low=False, pixels=FILE_PIXELS).shape == (256, 1024, 3)
    assert decode(saved(corners(200, 100), "PNG"), low=True, pixels=PIXELS).shape == (100, 200, 3)


def test_a_turned_image_is_made_smaller() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = decode(saved(corners(1000, 500), "JPEG", quality=95, exif=exif))
    assert pixels.shape[0] > pixels.shape[1]
    assert near(pixels, *UPRIGHT[6])


def test_a_bomb_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = png(30_000, 30_000, 1, 0, bytes(3751))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("pixels were decoded"))
    with pytest.raises(ImageError, match="too large: it has 30000 x 30000 pixels, and at most 1048576"):
        decode(bomb)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_the_limit_on_pixels_holds_for_each_format(form: str) -> None:
    file = saved(corners(200, 100), form)
    assert decode(file, file_pixels=20_000).shape == (100, 200, 3)
    with pytest.raises(ImageError, match="too large: it has 200 x 100 pixels"):
        decode(file, file_pixels=19_999)


def test_a_bomb_in_metadata_is_refused_or_ignored() -> None:
    bomb = zlib.compress(bytes(16 << 20))
    text, profile = chunk(b"zTXt", b"comment\0\0" + bomb), chunk(b"iCCP", b"profile\0\0" + bomb)
    for more in (text, profile):
        try:
            assert decode(png(1, 1, 8, 2, bytes(4), more)).shape == (1, 1, 3)
        except ImageError as error:
            assert "damaged" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("mode", "form", "options"),
    [
        ("RGBA", "WEBP", {"lossless": True, "method": 0, "quality": 0}),
        ("RGB", "WEBP", {"method": 0, "quality": 1}),
        ("RGBA", "PNG", {"compress_level": 1}),
        ("I;16", "PNG", {"compress_level": 1}),
        ("LA", "PNG", {"compress_level": 1}),
        ("CMYK", "JPEG", {"progressive": True, "subsampling": 0}),
        ("P", "GIF", {}),
    ],
)
def test_the_largest_images_fit_into_the_memory_that_is_allowed(
    mode: str, form: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.images.decoder, "_MEMORY", 2 << 20)
    file = saved(Image.new(mode, (2048, 1024)), form, **options)
    assert decode(file, file_pixels=2048 * 1024).shape == (181, 362, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda frames: saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100),
        lambda frames: saved(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=100),
        lambda frames: saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=100),
    ],
    ids=["GIF", "APNG", "WebP"],
)
def test_animations_are_refused_by_name(make: Callable[[list[Image.Image]], bytes]) -> None:
    frames = [corners(), corners().transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    with pytest.raises(ImageError, match="is animated; send a still image"):
        decode(make(frames))


def scans(count: int) -> bytes:
    """Return a progressive JPEG file whose last scan is repeated until there are ``count``."""
    file = saved(corners(), "JPEG", progressive=True)
    last = file.rindex(b"\xff\xda")
    return file[:last] + file[last:-2] * (count - file.count(b"\xff\xda") + 1) + file[-2:]


def test_progressive_files_are_read_and_too_many_scans_refused() -> None:
    assert decode(scans(100)).shape == (32, 64, 3)
    with pytest.raises(ImageError, match=r"has more than 100 scans"):
        decode(scans(101))


def test_a_scan_is_told_from_the_same_bytes_in_a_preview_or_in_pixels() -> None:
    preview = b"Exif\0\0" + b"\xff\xda" * 1000
    assert decode(saved(corners(), "JPEG", exif=preview)).shape == (32, 64, 3)
    noise = Image.effect_noise((300, 300), 90)
    assert decode(saved(noise, "JPEG", quality=98, restart_marker_blocks=1), pixels=90_000).shape == (300, 300, 3)


def blocks(form: str, count: int) -> bytes:
    """Return a file with ``count`` empty blocks of metadata."""
    file = saved(Image.new("P", (8, 8)) if form == "GIF" else Image.new("RGB", (8, 8)), form)
    block, start = {
        "JPEG": (b"\xff\xe5\0\2", 2),
        "PNG": (chunk(b"teSt", b""), 33),
        "GIF": (b"\x21\xfe\0", file.find(b"\x2c")),
    }[form]
    return file[:start] + block * count + file[start:]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF"])
def test_files_of_many_blocks_are_refused(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(worker.images.decoder, "_MIN_BLOCKS", 500)
    assert decode(blocks(form, 400)).shape == (8, 8, 3)
    with pytest.raises(ImageError, match=r"has more than \d+ blocks; save it again without metadata"):
        decode(blocks(form, 1000))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP"])
def test_a_large_file_has_few_blocks(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(worker.images.decoder, "_MIN_BLOCKS", 500)
    noise = Image.effect_noise((500, 500), 90).convert("P" if form == "GIF" else "RGB")
    assert decode(saved(noise, form), pixels=250_000).shape == (500, 500, 3)


def test_the_first_image_of_a_phones_jpeg_counts() -> None:
    """Phones put a preview or a depth map after the photo (MPO)."""
    file = saved(corners(), "MPO", save_all=True, append_images=[corners(8, 8)], quality=95)
    assert near(decode(file), RED, GREEN, BLUE, YELLOW)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_truncated_files_are_refused(form: str) -> None:
    noise = numpy.random.default_rng(1).integers(0, 255, (64, 64, 3), dtype=numpy.uint8)
    file = saved(Image.fromarray(noise), form)
    for share in (0.05, 0.3, 0.6, 0.9):
        with pytest.raises(ImageError, match="truncated or damaged"):
            decode(file[: int(share * len(file))])


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_damaged_files_are_images_or_refused(form: str) -> None:
    random = numpy.random.default_rng(2)
    file = saved(corners(), form)
    for _ in range(200):
        damaged = bytearray(file)
        for _ in range(int(random.integers(1, 8))):
            damaged[int(random.integers(0, len(file)))] = int(random.integers(0, 256))
        try:
            pixels = decode(bytes(damaged))
        except ImageError:
            continue
        assert 0 < pixels.shape[0] * pixels.shape[1] <= PIXELS


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (b"", "is empty"),
        (b"II*\0\x08\0\0\0", "is a TIFF file"),
        (saved(corners(), "TIFF"), "is a TIFF file"),
        (saved(corners(), "BMP"), "is a BMP file"),
        (saved(corners(), "ICO"), "is an icon file"),
        (saved(corners(), "PPM"), "is in no known format"),
        (saved(corners(), "TGA"), "is in no known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is an SVG or XML file"),
        (b"\n <?xml version='1.0'?><svg/>", "is an SVG or XML file"),
        (b"<!DOCTYPE html><html></html>", "is an HTML file"),
        (b"%PDF-1.7", "is a PDF file"),
        (b"\0\0\0\x18ftypheic", "is a HEIC file"),
        (b"\0\0\0\x18ftypavif", "is an AVIF file"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "is in no known format"),
        (b"hello", "is in no known format"),
    ],
)
def test_other_formats_are_refused_by_name(file: bytes, name: str) -> None:
    with pytest.raises(ImageError, match=f"{name}; PNG, JPEG, WebP and still GIF files are read"):
        decode(file)


def test_a_polyglot_is_only_an_image() -> None:
    for form in ("PNG", "JPEG", "GIF"):
        file = saved(corners(), form) + b"<script>alert(1)</script>PK\x03\x04%PDF-1.7"
        assert near(decode(file), RED, GREEN, BLUE, YELLOW)


@pytest.mark.parametrize("size", [(200, 1), (1, 200), (2, 1000)])
def test_extreme_shapes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError, match=f"{size[0]} x {size[1]} pixels: one side must be less than 200 times"):
        decode(saved(corners(*size), "PNG"))


def test_recent_images_are_kept_by_digest_and_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = 0
    original = Image.open

    def counting(*args: Any, **kwargs: Any) -> Image.Image:
        nonlocal opened
        opened += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(Image, "open", counting)
    file = saved(corners(), "PNG")
    size = 64 * 32 * 3
    images = decoder(cache_bytes=2 * size)
    first = images.decode(file, key="a", low=False, pixels=PIXELS)
    assert images.decode(file, key="a", low=False, pixels=PIXELS) is first
    assert opened == 1
    images.decode(file, key="a", low=True, pixels=PIXELS)
    images.decode(file, key="a", low=False, pixels=PIXELS)
    assert opened == 2
    images.decode(file, key="b", low=False, pixels=PIXELS)  # in place of the one used least recently
    images.decode(file, key="a", low=False, pixels=PIXELS)
    assert opened == 3
    images.decode(file, key="a", low=True, pixels=PIXELS)
    assert opened == 4
    images.decode(file, key="a", low=True, pixels=PIXELS // 2)
    assert opened == 5
    large = decoder(cache_bytes=size - 1)
    for _ in range(2):
        assert large.decode(file, key="a", low=False, pixels=PIXELS) == first
