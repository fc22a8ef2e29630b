"""What the throughput of a job is computed with: model, batch, GPU, size of the job; and who said so.

What the user asks for goes first, then what the traces recorded, then what ``run.toml`` says. Nothing is
guessed: what nobody said is unknown, with the reason and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from traceview import hardware, models
from traceview.errors import UsageError
from traceview.recipe import FILE, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traceview.hardware import Device
    from traceview.models import Model
    from traceview.run import Run

ASKED, RECORDED, ASSUMED = "as asked", "recorded", "assumed, as in the published runs"
_SIZES = ("seq_len", "packed_len", "global_batch_size", "tokens_per_step", "gpus")
_LETTERS = 64  # of a device name in a message
_SHOWN = 4  # device names in a message
_REMEDY = f"or say it in {FILE} beside the traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user says. None leaves it to the traces, to ``run.toml`` or to the convention.

    Attributes:
        model: The model.
        seq_len: Tokens per sequence.
        packed_len: Length that attention sees in packed documents: Σ len² / Σ len.
        global_batch_size: Sequences of all ranks in one step.
        tokens_per_step: Tokens of all ranks in one step.
        gpu: The GPU.
        gpus: GPUs of the job.
        convention: Whose way of counting FLOPs, a key of `flops.CONVENTIONS`.
        causal: Whether a causal mask halves attention.
        mtp_layers: Layers of multi-token prediction.
        precision: The only precision to show a peak of, one of `hardware.PRECISIONS`.
        peak_set: Which published set of peaks.
    """

    model: Model | None = None
    seq_len: int | None = None
    packed_len: float | None = None
    global_batch_size: int | None = None
    tokens_per_step: int | None = None
    gpu: Device | None = None
    gpus: int | None = None
    convention: str = "megatron"
    causal: bool | None = None
    mtp_layers: int | None = None
    precision: str | None = None
    peak_set: str | None = None

    def __post_init__(self) -> None:
        least = {"mtp_layers": 0} | dict.fromkeys(_SIZES, 1)
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not bound <= value < float("inf"):
                message = f"{name} must be at least {bound}."
                raise UsageError(message)

    @classmethod
    def of(cls, **said: Any) -> Self:  # noqa: ANN401 - the fields
        """The same, where model and GPU may be given by name.

        Raises:
            UsageError: One of them is not known, or there is no such thing to say.
        """
        names = [field.name for field in fields(cls)]
        if wrong := [name for name in said if name not in names]:
            message = f"mfu does not take {', '.join(wrong)}; it takes {', '.join(names)}."
            raise UsageError(message)
        model, gpu = said.get("model"), said.get("gpu")
        named: dict[str, Any] = {}
        if isinstance(model, str):
            named["model"] = models.named(model)
        if isinstance(gpu, str):
            named["gpu"] = hardware.named(gpu)
        return cls(**said | named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is known; None is what nobody said.

    Attributes:
        model: The model.
        length: Tokens per sequence as attention sees them.
        tokens_per_step: Tokens of all ranks in one step.
        gpus: GPUs of the job.
        gpu: What is known about each.
        mtp_layers: Layers of multi-token prediction; None leaves them to the model.
        precision: Operand type of most matmuls.
        said_by: Who said each of these: `ASKED`, `RECORDED`, `recipe.FILE` or `ASSUMED`.
        unknown: What cannot be told without the missing ones, each with the reason and the remedy.
        contradictions: Where what somebody said is not what the traces recorded.
    """

    model: Model | None
    length: float | None
    tokens_per_step: int | None
    gpus: int | None
    gpu: Device | None
    mtp_layers: int | None
    precision: str | None
    said_by: Mapping[str, str]
    unknown: Mapping[str, str]
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What traces recorded.

    Attributes:
        device_names: Names of the devices; None for a trace that names none.
        ranks: Ranks of the job.
        is_one_device_each: Whether no rank has several devices, so that there are as many GPUs as ranks.
    """

    device_names: frozenset[str | None] = frozenset()
    ranks: int | None = None
    is_one_device_each: bool = True

    @classmethod
    def of(cls, run: Run, *, is_one_device_each: bool) -> Self:
        """What the traces of ``run`` recorded."""
        names = frozenset(trace.facts.device_name for trace in run.traces)
        return cls(device_names=names, ranks=run.world_size, is_one_device_each=is_one_device_each)

    @property
    def gpu(self) -> Device | None:
        """The one GPU that all traces name; None where it is not known or they differ."""
        return hardware.of(next(iter(self.device_names))) if len(self.device_names) == 1 else None

    @property
    def gpus(self) -> int | None:
        """GPUs of the job."""
        return self.ranks if self.is_one_device_each else None


def terms(asked: Asked, recorded: Recorded, recipe: Recipe, *, assumed_length: int | None = None) -> Terms:
    """What is known, each from the first that said it: the user, the traces, ``run.toml``.

    Args:
        asked: What the user says.
        recorded: What the traces recorded.
        recipe: What ``run.toml`` says.
        assumed_length: Tokens per sequence, where nobody said; no trace's figures may rest on it.
    """
    said = _Said()
    known: dict[str, Any] = {
        "model": said.first("model", asked.model, None, recipe.model),
        "length": said.first(
            "length", asked.packed_len or asked.seq_len, None, recipe.seq_len, assumed_length
        ),
        "tokens_per_step": said.first(
            "tokens_per_step", _tokens(asked, recipe), None, recipe.tokens_per_step
        ),
        "gpus": said.first("gpus", asked.gpus, recorded.gpus, recipe.gpus),
        "gpu": said.first("gpu", asked.gpu, recorded.gpu, recipe.gpu),
        "mtp_layers": said.first("mtp_layers", asked.mtp_layers, None, recipe.mtp_layers),
        "precision": said.first("precision", asked.precision, None, recipe.precision),
    }
    return Terms(
        **known,
        said_by=said.by,
        unknown=_unknown(known, recorded),
        contradictions=tuple(_contradictions(asked, recorded, recipe)),
    )


@dataclass(slots=True)
class _Said:
    """Who said what, as far as it was asked for."""

    by: dict[str, str] = field(default_factory=dict)

    def first(self, name: str, *values: Any) -> Any:  # noqa: ANN401 - of any field
        """The first of what was asked, recorded, written and assumed that is not None."""
        for who, value in zip((ASKED, RECORDED, FILE, ASSUMED), values, strict=False):
            if value is not None:
                self.by[name] = who
                return value
        return None


def _tokens(asked: Asked, recipe: Recipe) -> int | None:
    """Tokens of a step as asked: said as they are, or by a factor that is not the one of ``run.toml``."""
    if asked.tokens_per_step or not (asked.global_batch_size or asked.seq_len):
        return asked.tokens_per_step
    batch = asked.global_batch_size or recipe.global_batch_size
    seq_len = asked.seq_len or recipe.seq_len
    return batch * seq_len if batch and seq_len else None


def _unknown(known: Mapping[str, Any], recorded: Recorded) -> dict[str, str]:
    missing = {name for name, value in known.items() if value is None}
    why_no_size = (
        "the traces do not record the size of the job"
        if recorded.is_one_device_each
        else "the ranks have several devices each, so the number of GPUs is not that of the ranks"
    )
    reasons = {
        "tokens_per_step": (
            "tokens/s/GPU",
            (
                "no trace records the tokens of a step; give --tokens-per-step, or --global-batch-size with "
                "--seq-len"
            ),
        ),
        "gpus": ("tokens/s/GPU", f"{why_no_size}; give --gpus"),
        "model": ("TFLOP/s", "no trace records the model; give --model"),
        "length": ("TFLOP/s", "no trace records the length of a sequence; give --seq-len"),
        "gpu": ("MFU", f"{_why_no_gpu(recorded)}; give --gpu"),
    }
    found: dict[str, str] = {}
    for name, (what, why) in reasons.items():
        if name in missing:
            found[what] = f"{found[what]}; {why}" if what in found else why
    return {what: f"{why}, {_REMEDY}" for what, why in found.items()}


def _why_no_gpu(recorded: Recorded) -> str:
    names = sorted(name[:_LETTERS] for name in recorded.device_names if name)
    if len(recorded.device_names) > 1:
        return f"the devices differ ({', '.join(names[:_SHOWN])})"
    return f"no peak is known of '{names[0]}'" if names else "the traces do not name the GPU"


def _contradictions(asked: Asked, recorded: Recorded, recipe: Recipe) -> list[str]:
    found = []
    for who, gpu, gpus in ((ASKED, asked.gpu, asked.gpus), (FILE, recipe.gpu, recipe.gpus)):
        if gpu and recorded.gpu and gpu.name != recorded.gpu.name:
            found.append(f"{who}, the GPU is {gpu.name}; the traces name {recorded.gpu.name}")
        if gpus and recorded.gpus and gpus != recorded.gpus:
            found.append(f"{who}, the job has {gpus:,} GPUs; the traces record {recorded.gpus:,} ranks")
    return found
