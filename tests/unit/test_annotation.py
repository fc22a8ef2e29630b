"""Ranges for training code: what is written down, who hears it, and that the parsers read it back."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceview as tv
from traceview import annotation
from traceview.annotation import NAMES, annotate, annotate_model
from traceview.vocabulary import parse

if TYPE_CHECKING:
    from pathlib import Path

_SMALL = st.none() | st.integers(0, 2**31 - 1)


@given(
    name=st.sampled_from(NAMES),
    numbers=st.fixed_dictionaries(
        dict.fromkeys(("layer", "microbatch", "step", "stage", "tokens", "experts"), _SMALL)
    ),
    phase=st.sampled_from([None, "forward", "backward", "recompute", "optimizer"]),
)
def test_what_a_range_says_is_read_back_exactly(
    name: str, numbers: dict[str, int | None], phase: Any
) -> None:
    [row] = parse(pl.Series([annotate(name, **numbers, phase=phase).text])).to_dicts()
    assert row["name"] == name
    assert {key: row[key] for key in numbers} == numbers
    own = name if name in annotation._PHASES else "backward" if name == "grad_reduce" else None
    assert row["phase"] == (own if name in annotation._PHASES else phase or own)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_vocabulary_has_a_meaning(name: str) -> None:
    [kind] = parse(pl.Series([annotate(name).text]))["kind"]
    assert kind != "other"


@pytest.mark.parametrize("name", ["", "a|b", "a\nb", "x" * 129])
def test_a_name_that_could_not_be_read_back_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a range needs a name"):
        annotate(name)


def test_a_negative_number_or_an_unknown_phase_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        annotate("moe", layer=-1)
    with pytest.raises(ValueError, match="is none of forward"):
        annotate("moe", phase="sideways")  # type: ignore[arg-type]


class _Domain:
    """Stands for nvtx: writes down what is pushed and popped."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.seen: list[str] = []

    def get_event_attributes(self, *, message: str) -> str:
        return message

    def push_range(self, attributes: str) -> None:
        self.open.append(attributes)
        self.seen.append(attributes)

    def pop_range(self) -> None:
        self.open.pop()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> _Domain:
    made = _Domain()
    monkeypatch.setattr(annotation, "_domain", lambda: made)
    annotation._attributes.cache_clear()
    monkeypatch.setattr(annotation, "_attributes", lambda text: text)
    return made


def test_a_range_is_closed_by_an_error_too(domain: _Domain) -> None:
    def fail() -> None:
        assert domain.open == ["tv:moe.dispatch|l=3|mb=0"]
        raise KeyError

    with pytest.raises(KeyError), tv.annotate("moe.dispatch", layer=3, microbatch=0):
        fail()
    assert domain.open == []


def test_a_decorated_function_may_call_itself(domain: _Domain) -> None:
    @tv.annotate("my part")
    def countdown(number: int) -> int:
        assert len(domain.open) == 4 - number
        return countdown(number - 1) if number else 0

    assert countdown(3) == 0
    assert domain.seen == ["tv:my part"] * 4
    assert domain.open == []


def test_annotating_imports_neither_torch_nor_polars() -> None:
    code = (
        "import sys, traceview as tv\n"
        "with tv.annotate('moe.dispatch', layer=1): pass\n"
        "print([name for name in ('torch', 'polars', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- with PyTorch ------------------------------------------------------------------------------------


def _modules() -> Any:
    """A model of two layers as Megatron Core builds them, its dispatcher a plain object."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Dispatcher:
        def token_dispatch(self, rows: Any) -> Any:
            return rows

        def token_combine(self, rows: Any) -> Any:
            return rows

    class Moe(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.router = torch.nn.Linear(4, 2)
            self.experts = torch.nn.Linear(4, 4)
            self.token_dispatcher = Dispatcher()

        def forward(self, rows: Any) -> Any:
            self.router(rows)
            sent = self.token_dispatcher.token_dispatch(rows)
            return self.token_dispatcher.token_combine(self.experts(sent))

    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.self_attention = torch.nn.Linear(4, 4)
            self.moe = Moe()

        def forward(self, rows: Any) -> Any:
            return self.moe(self.self_attention(rows))

    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([Layer(), Layer()])
    return torch, model


LAYER_0 = [
    "tv:layer|l=0",
    "tv:attention|l=0",
    "tv:moe|l=0",
    "tv:moe.router|l=0",
    "tv:moe.dispatch|l=0",
    "tv:moe.expert|l=0",
    "tv:moe.combine|l=0",
]


def test_a_model_is_annotated_without_editing_it_and_given_back_as_it_was(domain: _Domain) -> None:
    torch, model = _modules()
    rows = torch.ones(3, 4)
    before = model.layers[0](rows)
    with annotate_model(model) as added:
        assert torch.equal(model.layers[0](rows), before)
        assert len(added.ranges) == 2 * len(LAYER_0)
    assert domain.seen == LAYER_0
    model.layers[0](rows)
    assert domain.seen == LAYER_0
    assert domain.open == []
    assert "token_dispatch" not in vars(model.layers[0].moe.token_dispatcher)


def test_a_model_that_fails_leaves_no_range_open(domain: _Domain) -> None:
    torch, model = _modules()
    with annotate_model(model), pytest.raises(RuntimeError):
        model.layers[0](torch.ones(3, 5))
    assert domain.open == []


def test_further_modules_are_named_by_their_path(domain: _Domain) -> None:
    torch, model = _modules()
    with annotate_model(model, names={r"moe\.experts$": "my experts"}):
        model.layers[1](torch.ones(1, 4))
    assert "tv:my experts|l=1" in domain.seen


def test_a_recorded_training_step_is_told_apart_by_layer_phase_and_part(tmp_path: Path) -> None:
    torch, model = _modules()
    path = tmp_path / "rank0.json"
    steps = count(5)
    with (
        annotate_model(model),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen,
    ):
        for _ in range(2):
            with tv.annotate("step", step=next(steps)):
                rows = torch.ones(64, 4, requires_grad=True)
                model.layers[1](model.layers[0](rows)).sum().backward()
    seen.export_chrome_trace(str(path))
    assert json.loads(path.read_text())["traceEvents"]
    ops = tv.load(path).ops.collect()
    products = ops.filter(pl.col("category") == "gemm")
    forward = products.filter(pl.col("phase") == "forward")
    assert sorted(set(forward["step"])) == [5, 6]
    assert sorted(forward.select("layer", pl.col("module").cast(pl.String)).unique().rows()) == [
        (layer, part) for layer in (0, 1) for part in ("attention", "expert", "router")
    ]
    assert "backward" in set(products["phase"])
