"""The graph of a model with a logits hook as a second consumer of the logits: whether to make it, how, and its cached
IR folder."""

import filecmp
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy
import openvino
from openvino import opset13 as opset

from worker.engine.protocol import EngineLoadError
from worker.model.devices import device_kind
from worker.model.files import LANGUAGE_MODEL, LANGUAGE_WEIGHTS, SMALL_MODEL, model_bytes, sees_images
from worker.model.source import ModelError
from worker.openvino.export import MODEL_FILES, cached_form, export_gguf
from worker.openvino.logits.operation import LogitsHook, StepInput
from worker.openvino.options import OpenVINOOptions

logger = logging.getLogger(__name__)


class NoHook(ValueError):
    """The model has no place for the hook. The message names what is missing."""


def add_hook(model: openvino.Model, *, paged: bool = True) -> None:
    """Insert the hook into ``model``, in place, for a pipeline with a ``paged`` KV cache, or for a stateful one.

    Raises :class:`NoHook` if it is not a language model of a known form.

    The hook changes logits in place, in the memory that the pipeline samples from: the plugin gives all consumers of
    the logits the same memory, and reads the model's outputs when all operations have run. The warm-up tests that.
    Adding a bias, which is nearly always zero, in the graph costs up to 2 % of a step.

    The weights keep their single consumer, because the CPU plugin multiplies by compressed weights only then. If the
    model has token ids, they are taken modulo the number of logits, so that a multiple of it can mark a prompt without
    changing its result.
    """
    result = model.output(0).node
    logits = result.input(0).get_source_output()
    shape = logits.get_partial_shape()
    if len(shape) != 3 or not shape[2].is_static:
        raise NoHook(f"the shape of the model's logits is {shape}, not [batch, tokens, vocabulary]")
    hidden = _projection(logits).input(0)
    if paged:
        for parameter in model.get_parameters():
            if "input_ids" in parameter.output(0).get_names():
                _apply_modulo(parameter, shape[2].get_length())
        step = _step_parameters(model)
    else:
        step = _step_of_one(model, hidden.get_source_output())
    # Rows are along the first axis in a paged model, and along the second one in a stateful one.
    axis = opset.constant(numpy.array(0 if paged else 1, numpy.int64))
    hidden.replace_source_output(opset.gather(hidden.get_source_output(), step[0], axis).output(0))
    # The conversion keeps the pipeline from finding the projection, to which it would add its own indices. For f32
    # logits it does nothing, and is removed when the model is compiled.
    converted = opset.convert(logits, openvino.Type.f32)
    result.input(0).replace_source_output(converted.output(0))
    converted.output(0).set_names({"logits"})
    hook = LogitsHook([converted.output(0), *step])
    hook.output(0).set_names({"logits_hook"})
    model.add_results([opset.result(hook.output(0))])
    model.validate_nodes_and_infer_types()


def _step_parameters(model: openvino.Model) -> StepInput:
    """Add inputs of these names. The pipeline fills them, and adds them itself to models without them."""
    inputs = []
    for name in StepInput._fields:
        kind = openvino.Type.i64 if name == "sampled_tokens_indices" else openvino.Type.i32
        inputs.append(opset.parameter([-1], kind, name=name))
        inputs[-1].output(0).set_names({name})
    model.add_parameters(inputs)
    return StepInput(*(node.output(0) for node in inputs))


def _step_of_one(model: openvino.Model, hidden: openvino.Output) -> StepInput:
    """Return what a stateful model computes: the last tokens of its only sequence, in a single block."""
    masks = [node for node in model.get_parameters() if "attention_mask" in node.output(0).get_names()]
    if not masks:
        raise NoHook("the model has no attention mask")
    zero, one, bounds = (opset.constant(numpy.array(value, numpy.int64)) for value in ([0], [1], [0, 1]))
    tokens, total = (
        opset.gather(opset.shape_of(of), one, opset.constant(numpy.array(0, numpy.int64)))
        for of in (hidden, masks[0].output(0))
    )
    # In the order of the fields.
    nodes = (opset.subtract(tokens, one), opset.subtract(total, tokens), opset.concat([zero, tokens], 0), zero, bounds)
    return StepInput(*(node.output(0) for node in nodes))


def _projection(logits: openvino.Output) -> openvino.Node:
    """Return the multiplication by the vocabulary's matrix, which a soft cap or a conversion may follow."""
    node = logits.get_node()
    while node.get_type_name() != "MatMul":
        if not node.inputs():
            raise NoHook("the model's logits do not come from a multiplication of matrices")
        node = node.input(0).get_source_output().get_node()
    return node


def _apply_modulo(parameter: openvino.Node, size: int) -> None:
    """Take the values of ``parameter`` modulo ``size``, for all its consumers."""
    consumers = [
        port for port in parameter.output(0).get_target_inputs() if port.get_node().get_type_name() != "ShapeOf"
    ]
    # An attribute of Clamp, not a constant, so that the weights' file stays the same.
    modulus = opset.clamp(opset.constant(numpy.array(0, numpy.int64)), size, size)
    remainder = opset.floor_mod(parameter.output(0), modulus).output(0)
    for consumer in consumers:
        consumer.replace_source_output(remainder)


_VERSION = "6"
"""Change it when the hook is put into graphs in another way."""


def hooked_folder(path: Path, context_length: int, *, paged: bool = True) -> Path:
    """Return the cached IR folder of the model at ``path`` with a logits hook, making it if necessary.

    ``paged`` is as in :func:`add_hook`.

    The weights of an IR folder are linked. Those of a GGUF file are saved as they are; ``context_length`` is stated in
    the folder's configuration. Raises :class:`NoHook` if the model has no place for a hook,
    and :class:`ModelError`, :class:`OSError` or :class:`RuntimeError` (from OpenVINO) if the folder can't be made.
    """

    def make(scratch: Path) -> Path:
        made = scratch / "made"
        made.mkdir()
        if path.is_dir():
            _make(path, made, _link, paged=paged)
        else:
            _make(export_gguf(path, context_length, scratch), made, shutil.move, paged=paged)
        return made

    form = "logits" if paged else "stateful-logits"
    return cached_form(form, path, (str(path.resolve()), str(context_length), _VERSION), make)


def _make(original: Path, made: Path, transfer: Callable[[Path, Path], object], *, paged: bool) -> None:
    """Write the model of the IR folder ``original`` with a hook to ``made``; ``transfer`` its other files."""
    names = (LANGUAGE_MODEL, LANGUAGE_WEIGHTS) if sees_images(original) else MODEL_FILES
    xml, weights = (made / name for name in names)
    model = openvino.Core().read_model(original / xml.name)
    add_hook(model, paged=paged)
    openvino.save_model(model, xml, compress_to_fp16=False)
    del model  # it maps the original weights
    if filecmp.cmp(original / weights.name, weights, shallow=False):
        weights.unlink()
        transfer(original / weights.name, weights)
    for file in original.iterdir():
        if file.name not in names:
            transfer(file, made / file.name)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.resolve())


def hooked_model(options: OpenVINOOptions, served: Path, *, paged: bool = True) -> Path | None:
    """Return the folder of ``served``, the model that is about to be loaded, with a logits hook; None: without one.

    Raises :class:`EngineLoadError` if ``options.logits`` is on and the model can't have a hook.
    """
    if options.logits == "off":
        return None
    obstacle = _obstacle(options, served)
    if obstacle is None:
        try:
            return hooked_folder(served, options.context_length, paged=paged)
        except (ModelError, NoHook, OSError, RuntimeError) as error:
            obstacle = str(error)
            logger.warning("fields that need logits are not served: %s", obstacle)
    if options.logits == "on":
        raise EngineLoadError(f"--logits on is not possible: {obstacle}")
    return None


def _obstacle(options: OpenVINOOptions, served: Path) -> str | None:
    if device_kind(options.device) != "CPU":
        return f"it has not been tried on {options.device}"
    if options.logits == "auto" and served.is_file() and model_bytes(served) > SMALL_MODEL:
        return "a copy of the GGUF file as an OpenVINO IR is needed, which '--logits on' makes"
    return None
