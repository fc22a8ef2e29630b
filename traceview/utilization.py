"""How much of the hardware a training job uses: tokens/s/GPU, TFLOP/s/GPU, MFU, and all they rest on.

``tokens/s/GPU = tokens of a step / (time of a step × GPUs)`` at the median step, with the bootstrap interval
of the median; ``TFLOP/s/GPU`` is that times the operations of a token (see `flops`), and MFU the share of a
published peak. What is not known is withheld, with the reason (see `terms`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from traceview import flops
from traceview.errors import UsageError
from traceview.hardware import PRECISIONS, Device
from traceview.recipe import Recipe
from traceview.schema import Column, Table
from traceview.statistics import StepTime, step_time
from traceview.terms import Asked, Recorded, Terms, terms
from traceview.trace import diagnostic

if TYPE_CHECKING:
    from traceview.flops import Flops
    from traceview.run import Run

PUBLISHED_LENGTH = 4096
"""Tokens per sequence of the runs in ``data/references.toml``."""

_F, _N, _S = pl.Float64(), pl.Int64(), pl.String()


def _figure(doc: str, unit: str | None = None) -> Column:
    return Column(_F, doc, unit, nullable=True)


RESULT = Table(
    "mfu",
    "Throughput of a job and its share of the peak: one row per precision whose peak is known, else one row.",
    {
        "precision": Column(_S, "operand type of the peak; null where no peak is known", nullable=True),
        "step_count": Column(_N, "distinct steps measured; null without a trace", nullable=True),
        "step_median_ns": _figure("median step over all rank-steps", "ns"),
        "step_p95_ns": _figure("95th percentile of them", "ns"),
        "tokens_per_step": Column(_N, "tokens of all ranks in one step", nullable=True),
        "gpu_count": Column(_N, "GPUs of the job", nullable=True),
        "tokens_per_s_per_gpu": _figure("throughput at the median step", "tokens/s"),
        "tokens_per_s_per_gpu_low": _figure("low end of its 95 % bootstrap interval", "tokens/s"),
        "tokens_per_s_per_gpu_high": _figure("high end of it", "tokens/s"),
        "tokens_per_s_per_gpu_p95": _figure("throughput at the 95th percentile step", "tokens/s"),
        "model": Column(_S, "model", nullable=True),
        "length": _figure("tokens per sequence as attention sees them", "tokens"),
        "convention": Column(_S, "whose way of counting operations"),
        "is_causal": Column(pl.Boolean(), "attention is counted half", nullable=True),
        "mtp_layers": Column(_N, "layers of multi-token prediction counted", nullable=True),
        "flops_per_token": _figure("operations of forward and backward", "FLOP"),
        "flops_per_s_per_gpu": _figure("throughput in operations at the median step", "FLOP/s"),
        "gpu": Column(_S, "GPU", nullable=True),
        "peak_flops_per_s": _figure("published peak without sparsity", "FLOP/s"),
        "peak_set": Column(_S, "which published set of peaks", nullable=True),
        "peak_source": Column(_S, "who published it", nullable=True),
        "mfu_ratio": _figure("share of the peak at the median step"),
        "mfu_low_ratio": _figure("low end of its 95 % bootstrap interval"),
        "mfu_high_ratio": _figure("high end of it"),
        "achievable_flops_per_s": _figure("best rate measured for one matmul", "FLOP/s"),
        "achievable_source": Column(_S, "who measured it", nullable=True),
        "achieved_ratio": _figure("share of that rate at the median step"),
        "withheld": Column(_S, "what could not be told, and why", nullable=True),
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens per second and GPU.

    Attributes:
        median: At the median step.
        low: Low end of its interval; None where there are too few steps.
        high: High end of it.
        slow: At the 95th percentile step.
    """

    median: float
    low: float | None = None
    high: float | None = None
    slow: float | None = None

    @classmethod
    def of(cls, time: StepTime, tokens_per_step: int, gpus: int) -> Self:
        """The throughput of steps that take ``time``."""
        tokens = tokens_per_step * 1e9 / gpus
        return cls(
            median=tokens / time.median_ns,
            low=tokens / time.high_ns if time.high_ns else None,
            high=tokens / time.low_ns if time.low_ns else None,
            slow=tokens / time.p95_ns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """What the GPUs of a job reach, and what that rests on.

    Attributes:
        terms: What it was computed with.
        step_time: The steps it was measured on; None without a trace, or where nothing tells steps apart.
        throughput: None where it is not known.
        flops: Operations of a token; None where they are not known.
        precision: Whose peak the headline names; None where no peak is known.
        frame: `RESULT`.
        notes: Diagnostics: what was withheld, and what contradicts the traces.
    """

    terms: Terms
    step_time: StepTime | None
    throughput: Throughput | None
    flops: Flops | None
    precision: str | None
    frame: pl.DataFrame = field(repr=False)
    notes: pl.DataFrame = field(repr=False)

    @property
    def tflops_per_gpu(self) -> float | None:
        """TFLOP/s of each GPU at the median step."""
        return self.flops.tflops_per_gpu(self.throughput.median) if self.flops and self.throughput else None

    @property
    def headline(self) -> dict[str, Any] | None:
        """The row of `precision`; None without a peak."""
        rows = self.frame.drop_nulls("precision").to_dicts()
        return next((row for row in rows if row["precision"] == self.precision), None)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as an Arrow C stream: for pyarrow, DuckDB, pandas, narwhals."""
        return self.frame.__arrow_c_stream__(requested_schema)


def of_run(run: Run, windows: pl.DataFrame, asked: Asked) -> Utilization:
    """What the GPUs of ``run`` reach.

    Args:
        run: The run, with its recipe.
        windows: Its `breakdown` by rank and step.
        asked: What the user says.

    Raises:
        UsageError: There is no such convention, or no such peak of this GPU.
    """
    stepped = windows.filter(pl.col("step").is_not_null())
    time = step_time(stepped["step"].to_numpy(), stepped["window_ns"].to_numpy())
    one_each = windows.select("rank", "device").n_unique() == windows["rank"].n_unique()
    found = terms(asked, Recorded.of(run, is_one_device_each=one_each), run.recipe)
    unknown, throughput = dict(found.unknown), None
    if not time or not time.median_ns:
        why = "nothing in the traces tells steps apart, so no step has a duration"
        unknown["tokens/s/GPU"] = "; ".join(filter(None, (why, unknown.get("tokens/s/GPU"))))
    elif found.tokens_per_step and found.gpus:
        throughput = Throughput.of(time, found.tokens_per_step, found.gpus)
    return _utilization(found, unknown, asked, throughput, time)


def of_throughput(tokens_per_s_per_gpu: float, asked: Asked) -> Utilization:
    """What a GPU reaches that trains this many tokens a second, without a trace.

    Raises:
        UsageError: The number is not positive, or there is no such convention or peak.
    """
    if not 0 < tokens_per_s_per_gpu < float("inf"):
        message = "tokens per second and GPU must be a positive number."
        raise UsageError(message)
    found = _terms_alone(asked)
    unknown = {what: why for what, why in found.unknown.items() if what != "tokens/s/GPU"}
    return _utilization(found, unknown, asked, Throughput(median=tokens_per_s_per_gpu), None)


def of_tflops(tflops_per_gpu: float, asked: Asked) -> Utilization:
    """The same from the TFLOP/s of a GPU.

    Raises:
        UsageError: As `of_throughput`; or the model is missing.
    """
    counted = _flops(_terms_alone(asked), asked)
    if counted is None:
        message = "TFLOP/s become tokens only with --model."
        raise UsageError(message)
    return of_throughput(counted.tokens_per_s_per_gpu(tflops_per_gpu), asked)


def _terms_alone(asked: Asked) -> Terms:
    """What is known without a trace; published runs have sequences of `PUBLISHED_LENGTH`."""
    return terms(asked, Recorded(), Recipe(), assumed_length=PUBLISHED_LENGTH)


def _utilization(
    found: Terms, unknown: dict[str, str], asked: Asked, throughput: Throughput | None, time: StepTime | None
) -> Utilization:
    convention = flops.counting(asked.convention).name
    counted = _flops(found, asked)
    shown = _precisions(found.gpu, asked)
    basis: dict[str, Any] = {
        "step_count": time.step_count if time else None,
        "step_median_ns": time.median_ns if time else None,
        "step_p95_ns": time.p95_ns if time else None,
        "tokens_per_step": found.tokens_per_step,
        "gpu_count": found.gpus,
        "model": found.model.name if found.model else None,
        "length": found.length,
        "convention": convention,
        "gpu": found.gpu.name if found.gpu else None,
        "withheld": "; ".join(f"{what}: {why}" for what, why in unknown.items()) or None,
    }
    basis |= _rates(throughput, counted)
    rows = [basis | _shares(basis, found.gpu, precision, asked.peak_set) for precision in shown]
    notes = [diagnostic("warning", "mfu.contradiction", text, count=1) for text in found.contradictions]
    notes += [diagnostic("info", "mfu.withheld", f"{what}: {why}", count=1) for what, why in unknown.items()]
    return Utilization(
        terms=found,
        step_time=time,
        throughput=throughput,
        flops=counted,
        precision=_headline(shown, found, asked),
        frame=RESULT.conform(pl.DataFrame(rows or [basis], schema=RESULT.schema())),
        notes=pl.concat([_NO_NOTES, *notes]),
    )


_NO_NOTES = diagnostic("info", "mfu.withheld", "", count=0).clear()


def _flops(found: Terms, asked: Asked) -> Flops | None:
    if found.model is None or found.length is None:
        return None
    return flops.per_token(
        found.model,
        found.length,
        convention=asked.convention,
        causal=asked.causal,
        mtp_layers=found.mtp_layers,
    )


def _precisions(gpu: Device | None, asked: Asked) -> list[str]:
    """Precisions to show a peak of.

    Raises:
        UsageError: The one asked for has none on this GPU.
    """
    if gpu is None:
        return []
    peaks = {precision: gpu.peak(precision, name=asked.peak_set) for precision in PRECISIONS}
    known = [precision for precision, peak in peaks.items() if peak]
    if asked.precision is None:
        # FP16 is as fast as BF16 wherever there is BF16
        return [precision for precision in known if precision != "fp16" or "bf16" not in known]
    if asked.precision not in known:
        message = f"no {asked.precision[:64]} peak of {gpu.name} is known; there is: {', '.join(known)}."
        raise UsageError(message)
    return [asked.precision]


def _headline(shown: list[str], found: Terms, asked: Asked) -> str | None:
    """The precision that was asked for, else the recipe's, else BF16.

    TorchTitan divides by the BF16 peak whatever the matmuls are.
    """
    wanted = None if asked.convention == "torchtitan" and not asked.precision else found.precision
    return wanted if wanted in shown else next(iter(shown), None)


def _rates(throughput: Throughput | None, counted: Flops | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if throughput:
        found |= {
            "tokens_per_s_per_gpu": throughput.median,
            "tokens_per_s_per_gpu_low": throughput.low,
            "tokens_per_s_per_gpu_high": throughput.high,
            "tokens_per_s_per_gpu_p95": throughput.slow,
        }
    if counted:
        found |= {
            "is_causal": counted.is_causal,
            "mtp_layers": counted.mtp_layers,
            "flops_per_token": counted.per_token,
        }
    if throughput and counted:
        found["flops_per_s_per_gpu"] = throughput.median * counted.per_token
    return found


def _shares(
    basis: dict[str, Any], gpu: Device | None, precision: str, peak_set: str | None
) -> dict[str, Any]:
    """Peak, achievable rate, and the shares of them that ``basis`` reaches."""
    peak = gpu.peak(precision, name=peak_set) if gpu else None
    reached = gpu.achievable(precision) if gpu else None
    found: dict[str, Any] = {"precision": precision}
    if peak:
        per_token = basis.get("flops_per_token")
        tokens = {end: basis.get(f"tokens_per_s_per_gpu{end}") for end in ("", "_low", "_high")}
        found |= {
            "peak_flops_per_s": peak.flops_per_s,
            "peak_set": peak.name,
            "peak_source": peak.source,
        } | {
            f"mfu{end}_ratio": rate * per_token / peak.flops_per_s if rate and per_token else None
            for end, rate in tokens.items()
        }
    if reached:
        rate = basis.get("flops_per_s_per_gpu")
        found |= {
            "achievable_flops_per_s": reached.flops_per_s,
            "achievable_source": reached.source,
            "achieved_ratio": rate / reached.flops_per_s if rate else None,
        }
    return found
