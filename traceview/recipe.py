"""What traces cannot say about a job, from ``run.toml`` beside them: model, batch, GPU, parallel sizes.

The file is optional, and so is every field of it::

    model = "deepseek-v3"       # a known name, a file beside run.toml, or a [model] table
    seq_len = 4096
    global_batch_size = 15360   # sequences of all ranks in one step
    tokens_per_step = 62914560  # if it is not their product
    gpu = "GB300"
    gpus = 256
    precision = "fp8"           # of most matmuls
    mtp_layers = 1
    [parallel]
    ep = 32
    pp = 2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from traceview import documents, hardware, models
from traceview.documents import LETTERS, Fields, unusable
from traceview.hardware import PRECISIONS, Device
from traceview.models import Model
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "run.toml"
AXES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp")
"""Parallel sizes of a job; ``vpp`` is the number of virtual stages per pipeline rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a job was set up, as its owner says; None is what nobody said.

    Attributes:
        model: The model.
        seq_len: Tokens per sequence.
        global_batch_size: Sequences of all ranks in one step.
        tokens_per_step: Tokens of all ranks in one step.
        gpu: The GPU.
        gpus: GPUs of the job.
        precision: Operand type of most matmuls, one of `hardware.PRECISIONS`.
        mtp_layers: Layers of multi-token prediction it was trained with.
        parallel: Parallel sizes by axis, those of `AXES` that were said.
    """

    model: Model | None = None
    seq_len: int | None = None
    global_batch_size: int | None = None
    tokens_per_step: int | None = None
    gpu: Device | None = None
    gpus: int | None = None
    precision: str | None = None
    mtp_layers: int | None = None
    parallel: Mapping[str, int] = field(default_factory=dict)


def read(folder: Path) -> tuple[Recipe, pl.DataFrame]:
    """The recipe in ``folder``, an empty one where there is none, and diagnostics about it.

    Raises:
        UsageError: The file cannot be read, or a field has no value it can have.
    """
    path = folder / FILE
    if not path.exists():
        return Recipe(), _NO_NOTES
    fields = Fields(documents.read(path), str(path))
    parallel = fields.part("parallel") or Fields({}, str(path))
    seq_len, batch = fields.optional_count("seq_len"), fields.optional_count("global_batch_size")
    product = seq_len * batch if seq_len and batch else None
    said = fields.optional_count("tokens_per_step")
    recipe = Recipe(
        model=_model(fields, folder),
        seq_len=seq_len,
        global_batch_size=batch,
        tokens_per_step=said or product,
        gpu=hardware.named(gpu) if (gpu := fields.text("gpu")) else None,
        gpus=fields.optional_count("gpus"),
        precision=_precision(fields),
        mtp_layers=fields.optional_count("mtp_layers", least=0),
        parallel={axis: size for axis in AXES if (size := parallel.optional_count(axis))},
    )
    notes = [_unknown(name, meant) for part in (fields, parallel) for name, meant in part.unknown().items()]
    if said and product and said != product:
        text = f"{FILE}: tokens_per_step is {said:,}, but global_batch_size × seq_len is {product:,}"
        notes.append(diagnostic("warning", "recipe.tokens_differ", text, count=1))
    return recipe, pl.concat([_NO_NOTES, *notes])


_NO_NOTES = diagnostic("info", "recipe.none", "", count=0).clear()


def _model(fields: Fields, folder: Path) -> Model | None:
    if isinstance(fields.table.get("model"), dict):
        table = fields.part("model")
        return Model.of(table, name="own model", source=FILE) if table else None
    name = fields.text("model")
    return models.named(name, beside=folder) if name else None


def _precision(fields: Fields) -> str | None:
    name = fields.text("precision")
    if name and name not in PRECISIONS:
        raise unusable(fields.where, f"'precision' must be one of {', '.join(PRECISIONS)}")
    return name or None


def _unknown(name: str, meant: str | None) -> pl.DataFrame:
    hint = f"; nearest: {meant}" if meant else ""
    text = f"{FILE}: unknown field '{name[:LETTERS]}' is passed over{hint}"
    return diagnostic("warning", "recipe.unknown_field", text, count=1)
