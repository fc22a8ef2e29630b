"""What two runs of different size hold fixed: tokens per rank, tokens per step, experts, parallel sizes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from traceview.analyzers import work as works

if TYPE_CHECKING:
    from traceview.comparisons.scaling import Size

KINDS = ("weak", "strong", "moe_weak", "same_size")
TOKENS_FROM = ("given", "evidence")
"""Tokens per step were given or stand in run.toml; or the work of a rank was compared, an assumption."""

EQUAL_WITHIN = 0.01
"""Relative difference up to which the traces of two runs show the same amount of work."""

_GRID = ("tp", "cp", "pp")  # what a change of would change the tokens that stand behind equal work
_NAMES = {
    "microbatch_count": "microbatches",
    "layer_count": "layers",
    "matrix_count": "matrix products",
    "matrix_blocks": "thread blocks of matrix products",
    "dispatched_bytes": "bytes dispatched",
}


@dataclass(frozen=True, slots=True)
class Held:
    """What was held fixed between two runs.

    Attributes:
        kind: One of `KINDS`; None where there is no such kind, or nothing tells.
        text: What was held and what was not, for people.
        reason: Why ``kind`` is None.
        tokens_per_rank: Tokens per rank and step over those of the smaller run; None if unknown.
        tokens_from: One of `TOKENS_FROM`; None if unknown.
    """

    kind: str | None
    text: str = ""
    reason: str | None = None
    tokens_per_rank: Fraction | None = None
    tokens_from: str | None = None


def held(base: Size, size: Size) -> Held:
    """What is the same in ``size`` as in the smaller ``base``."""
    growth = Fraction(size.rank_count, base.rank_count)
    if base.tokens_per_step and size.tokens_per_step:
        ratio, source = Fraction(size.tokens_per_step, base.tokens_per_step) / growth, "given"
    else:
        found = _by_evidence(base, size, growth)
        if isinstance(found, str):
            return Held(None, _sizes(base, size), found)
        ratio, source = found, "evidence"
    if growth == 1 and ratio == 1:
        return Held("same_size", _text("ranks and tokens", base, size), None, ratio, source)
    if ratio == 1:
        grown = _grown_experts(base, size, growth)
        what = "tokens per rank and experts per rank" if grown else "tokens per rank"
        return Held("moe_weak" if grown else "weak", _text(what, base, size), None, ratio, source)
    if ratio * growth == 1:
        return Held("strong", _text("tokens per step", base, size), None, ratio, source)
    change = f"tokens per rank change by {float(ratio):.3g}, tokens per step by {float(ratio * growth):.3g}"
    return Held(
        None, _sizes(base, size), f"neither tokens per rank nor per step are held: {change}", ratio, source
    )


def _by_evidence(base: Size, size: Size, growth: Fraction) -> Fraction | str:
    """Tokens per rank over those of ``base`` as the work of a rank tells; or why it does not tell."""
    before, after = _work(base), _work(size)
    give = "give --tokens-per-step"
    for axis in _GRID:
        sizes = before[f"{axis}_size"], after[f"{axis}_size"]
        if None not in sizes and sizes[0] != sizes[1]:
            change = f"{axis.upper()} changes from {sizes[0]} to {sizes[1]}"
            return f"{change}, so equal work of a rank tells nothing; {give}"
    ratios = {
        name: after[name] / before[name]
        for name in works.MEASURES
        if before[name] and after[name] is not None
    }
    if "matrix_count" not in ratios or not {"matrix_blocks", "dispatched_bytes"} & set(ratios):
        return f"nothing in the traces tells how many tokens a rank works on; {give}"
    microbatches = ratios.pop("microbatch_count", 1.0)
    expected = {name: 1.0 if name == "layer_count" else microbatches for name in ratios}
    for name, ratio in ratios.items():
        if abs(ratio / expected[name] - 1) > EQUAL_WITHIN:
            was, now = (f"{values[name]:,.6g}" for values in (before, after))
            return f"a rank does not do the same work: {_NAMES[name]} {was} against {now} per step; {give}"
    for ratio in (Fraction(1), 1 / growth):
        if abs(microbatches / float(ratio) - 1) <= EQUAL_WITHIN:
            return ratio
    return Fraction(microbatches).limit_denominator(1000)


def _work(size: Size) -> dict[str, Any]:
    rows = size.answers["work"].to_dicts()
    return rows[0] if rows else dict.fromkeys(works.RESULT.columns)


def _grown_experts(base: Size, size: Size, growth: Fraction) -> bool:
    """Whether there are more experts, by as much as there are more ranks."""
    if not base.experts or not size.experts or growth == 1:
        return False
    return Fraction(size.experts, base.experts) == growth


def _text(what: str, base: Size, size: Size) -> str:
    """What was held, then the parallel sizes, then what is not known about the experts."""
    experts = ""
    before, after = _work(base)["ep_size"], _work(size)["ep_size"]
    if base.experts and size.experts:
        same = base.experts == size.experts
        experts = f"experts {base.experts}" if same else f"experts {base.experts} → {size.experts}"
    elif before != after and None not in (before, after):
        experts = "whether the experts grew with EP is not known (--experts)"
    return "; ".join(text for text in (what, _sizes(base, size), experts) if text)


def _sizes(base: Size, size: Size) -> str:
    """Sizes of the groups in both runs; those that are nowhere larger than 1 are left out."""
    pairs = {axis: (_work(base)[f"{axis}_size"], _work(size)[f"{axis}_size"]) for axis in works.AXES}
    shown = {axis: pair for axis, pair in pairs.items() if None not in pair and max(pair) > 1}
    return ", ".join(
        f"{axis.upper()} {was}" if was == now else f"{axis.upper()} {was} → {now}"
        for axis, (was, now) in shown.items()
    )
