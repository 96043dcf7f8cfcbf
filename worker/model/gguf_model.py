"""What has to be done to a GGUF file so that OpenVINO GenAI computes the model in it."""

from functools import cached_property
from pathlib import Path

import numpy

from worker.model.f16_file import tensor_values, write_f16
from worker.model.gguf import GGUFError, Header, read_header
from worker.model.header import genai_reads, head_size, own_keys
from worker.model.rope import FACTORS, Rotation, read_rotation
from worker.model.source import ModelError
from worker.model.split import parts


class GGUFModel:
    """The model in the GGUF file at ``path``, whose header was checked, and its other parts.

    Raises :class:`ModelError` or :class:`OSError` if it can't be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._parts = [(file, read_header(file)) for file in parts(path)]
        except GGUFError as error:
            raise ModelError(str(error)) from error
        self._own = own_keys(self._parts[0][1].metadata)
        self._head = head_size(self._own)

    @property
    def is_readable(self) -> bool:
        """Whether GenAI reads the types of all its tensors."""
        return genai_reads(self._headers)

    @property
    def is_exact(self) -> bool:
        """Whether it reads their values, too: it rounds the minima of Q4_1 and Q4_K to multiples of their scales."""
        kinds = {tensor.type_name for header in self._headers for tensor in header.tensors.values()}
        return self.is_readable and not kinds & {"Q4_1", "Q4_K"}

    @property
    def _headers(self) -> list[Header]:
        return [header for _, header in self._parts]

    @cached_property
    def rotation(self) -> Rotation:
        """What its header says about rotations."""
        files = [(file, header.tensors[FACTORS]) for file, header in self._parts if FACTORS in header.tensors]
        factors = numpy.concatenate(list(tensor_values(*files[0]))).reshape(-1) if files else None
        if factors is not None and 2 * len(factors) != self._head:
            raise ModelError(f"Its tensor {FACTORS} has {len(factors)} elements, and not {self._head // 2}.")
        return read_rotation(self._own, self._head, factors)

    @property
    def needs_export(self) -> bool:
        """Whether it can only be served as an IR: GenAI can't read it, or ignores a key of its header."""
        return not self.is_readable or not self.rotation.is_plain

    def write_f16(self, target: Path) -> None:
        """Write a GGUF file that GenAI reads exactly. Raises :class:`OSError` if that fails."""
        write_f16(self._parts, target)
