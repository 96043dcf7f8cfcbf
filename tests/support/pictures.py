"""Generated pictures of coloured shapes, with questions about them and the right answers.

The model in ``tests/models/qwen2-vl-shapes`` is trained on these; tests draw pictures from seeds it has not seen.
"""

import base64
import random
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import numpy.typing

Pixels = numpy.typing.NDArray[numpy.uint8]
"""Rows of pixels in RGB or RGBA."""

SHAPES_MODEL = Path(__file__).parents[1] / "models" / "qwen2-vl-shapes"
SIDE = 56
"""Pixels of a side, as the model is trained. Other sizes are resized by the engine."""
HELD_OUT = 1_000_000
"""Seeds from here on are never used in training."""
SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (225, 35, 35),
    "green": (30, 160, 50),
    "blue": (35, 65, 225),
    "yellow": (245, 210, 25),
    "purple": (150, 40, 180),
    "black": (15, 15, 15),
}
BACKGROUNDS = {"white": (255, 255, 255), "grey": (170, 170, 170), "pink": (255, 190, 205)}
CORNERS = ("top left", "top right", "bottom left", "bottom right")
NUMBERS = ("no", "one", "two", "three", "four")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question in a prompt's words, the answer that a model should write, character for character, and its kind."""

    text: str
    answer: str
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A coloured shape. Lengths are fractions of the picture's side."""

    shape: str
    colour: str
    corner: int
    x: float
    y: float
    radius: float

    def __str__(self) -> str:
        return f"a {self.colour} {self.shape}"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One to four things, at most one in each corner, in the order of ``CORNERS``."""

    things: tuple[Thing, ...]
    background: str

    def pixels(self, height: int = SIDE, width: int = SIDE) -> Pixels:
        """Draw the picture in RGB."""
        return numpy.ascontiguousarray(self.transparent(height, width, opaque=True)[..., :3])

    def transparent(self, height: int = SIDE, width: int = SIDE, *, opaque: bool = False) -> Pixels:
        """Draw the picture in RGBA; the background is black and transparent unless it is to be ``opaque``."""
        image = numpy.zeros((height, width, 4), numpy.uint8)
        if opaque:
            image[:] = (*BACKGROUNDS[self.background], 255)
        y, x = numpy.ogrid[:height, :width]
        for thing in self.things:
            across = ((x + 0.5) / width - thing.x) / thing.radius
            down = ((y + 0.5) / height - thing.y) / thing.radius
            image[_covered(thing.shape, across, down)] = (*COLOURS[thing.colour], 255)
        return image

    def describe(self) -> str:
        """Answer "Describe the picture."."""
        match self.things:
            case [thing]:
                return f"{thing}."
            case [one, other] if one.corner % 2 == other.corner % 2:
                return f"{one} above {other}."
            case [one, other]:
                left, right = sorted((one, other), key=lambda thing: thing.corner % 2)
                return f"{left} left of {right}."
            case [*others, last]:
                return f"{', '.join(map(str, others))} and {last}."
        raise AssertionError("a picture has things")

    def corners(self) -> str:
        """Answer "Describe every corner."."""
        there = {thing.corner: str(thing) for thing in self.things}
        return " ".join(f"{name}: {there.get(corner, 'nothing')}." for corner, name in enumerate(CORNERS))

    def questions(self) -> list[Question]:
        """Return every question that this picture answers."""
        shapes = Counter(thing.shape for thing in self.things)
        colours = Counter(thing.colour for thing in self.things)
        there = {thing.corner: thing for thing in self.things}
        asked: list[Question] = []

        def ask(kind: str, text: str, answer: object) -> None:
            asked.append(Question(text=text, answer=str(answer), kind=kind))

        ask("description", "Describe the picture.", self.describe())
        ask("all corners", "Describe every corner.", self.corners())
        ask("number of shapes", "How many shapes are there?", len(self.things))
        ask("background", "What colour is the background?", self.background)
        for shape in SHAPES:
            several = "crosses" if shape == "cross" else f"{shape}s"
            ask("number of a shape", f"How many {several} are there?", shapes[shape])
            ask("presence of a shape", f"Is there a {shape}?", "yes" if shapes[shape] else "no")
        for colour in COLOURS:
            ask("number of a colour", f"How many shapes are {colour}?", colours[colour])
        for corner, name in enumerate(CORNERS):
            thing = there.get(corner)
            ask("shape at a corner", f"Which shape is at the {name}?", thing.shape if thing else "none")
            ask("colour at a corner", f"Which colour is at the {name}?", thing.colour if thing else "none")
        for thing in self.things:
            if shapes[thing.shape] == 1:
                ask("colour of a shape", f"What colour is the {thing.shape}?", thing.colour)
                ask("place of a shape", f"Where is the {thing.shape}?", CORNERS[thing.corner])
            if colours[thing.colour] == 1:
                ask("shape of a colour", f"Which shape is {thing.colour}?", thing.shape)
        match sorted(self.things, key=lambda thing: thing.corner % 2):
            case [left, right] if left.corner % 2 != right.corner % 2:
                ask("left or right", "Which shape is left?", left.shape)
                ask("left or right", "Which shape is right?", right.shape)
        return asked

    def one_of_each_kind(self, chosen: random.Random) -> list[Question]:
        """Choose a question of each kind that this picture answers."""
        kinds: dict[str, list[Question]] = {}
        for asked in self.questions():
            kinds.setdefault(asked.kind, []).append(asked)
        return [chosen.choice(several) for several in kinds.values()]


def picture(seed: int) -> Picture:
    """Return the picture that belongs to ``seed``."""
    chosen = random.Random(f"picture {seed}")
    corners = sorted(chosen.sample(range(len(CORNERS)), chosen.choice((1, 2, 2, 3, 4))))
    return Picture(things=tuple(_thing(corner, chosen) for corner in corners), background=chosen.choice([*BACKGROUNDS]))


def question(seed: int) -> tuple[Picture, Question]:
    """Return the picture that belongs to ``seed``, and one of its questions; each kind is as likely as the others."""
    drawn = picture(seed)
    chosen = random.Random(f"question {seed}")
    return drawn, chosen.choice(drawn.one_of_each_kind(chosen))


def png(pixels: Pixels) -> bytes:
    """Encode RGB or RGBA as a PNG file."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def data_url(file: bytes, form: str = "png") -> str:
    """Return a data URL of an image file of the format ``form``."""
    return f"data:image/{form};base64,{base64.b64encode(file).decode()}"


def _thing(corner: int, chosen: random.Random) -> Thing:
    return Thing(
        shape=chosen.choice(SHAPES),
        colour=chosen.choice([*COLOURS]),
        corner=corner,
        x=(0.25, 0.75)[corner % 2] + chosen.uniform(-0.05, 0.05),
        y=(0.25, 0.75)[corner // 2] + chosen.uniform(-0.05, 0.05),
        radius=chosen.uniform(0.12, 0.18),
    )


def _covered(shape: str, across: Any, down: Any) -> Any:
    """Return which pixels a shape covers, from their distances to its centre in units of its radius."""
    match shape:
        case "circle":
            return across**2 + down**2 <= 1
        case "square":
            return (abs(across) <= 0.85) & (abs(down) <= 0.85)
        case "triangle":
            return (down <= 0.85) & (abs(across) <= (down + 0.95) * 0.55)
        case _:
            return (abs(across) <= 0.3) & (abs(down) <= 1) | (abs(across) <= 1) & (abs(down) <= 0.3)
