"""Ranges for your training code, in the one vocabulary that traceview reads back from every profiler.

>>> import traceview as tv
>>> with tv.annotate("moe.dispatch", layer=3, microbatch=0):
...     pass

A range goes to NVTX (Nsight Systems) and, while a PyTorch profiler records, to ``record_function``. Without a
listener it costs about a microsecond. PyTorch is never imported here: only a process that already uses it is
asked for its profiler. The names and what they mean are the rules ``traceview-*`` of ``data/ranges.toml``.
"""

from __future__ import annotations

import re
import sys
from contextlib import ContextDecorator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import nvtx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

Phase = Literal["forward", "backward", "recompute", "optimizer"]

DOMAIN = "traceview"
NAMES = (
    *("step", "layer", "forward", "backward", "recompute", "optimizer"),
    *("attention", "mlp", "norm", "embedding", "loss", "mtp", "moe", "grad_reduce", "param_gather"),
    *("moe.router", "moe.permute", "moe.dispatch", "moe.expert", "moe.combine", "moe.shared_expert"),
    *("pp.send", "pp.recv"),
)
"""Names with a meaning; any other is kept as a range of kind "other"."""

_PHASES = {"forward": "fwd", "backward": "bwd", "recompute": "rec", "optimizer": "opt"}
_LONGEST_NAME = 128


class Annotation(ContextDecorator):
    """A range: a context manager, and a decorator. May be entered again, but not while it is open."""

    __slots__ = ("_profiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._profiled: Any = None

    def __enter__(self) -> Self:
        _domain().push_range(_attributes(self.text))
        self._profiled = _record_function(self.text)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._profiled is not None:
            self._profiled.__exit__(kind, error, trace)
            self._profiled = None
        _domain().pop_range()

    def _recreate_cm(self) -> Self:
        """A range of its own for each call of a decorated function, which may be recursive."""
        return type(self)(self.text)

    def __repr__(self) -> str:
        return f"<range {self.text}>"


def annotate(  # noqa: PLR0913 - one keyword for each thing a range may say
    name: str,
    *,
    layer: int | None = None,
    microbatch: int | None = None,
    step: int | None = None,
    stage: int | None = None,
    phase: Phase | None = None,
    tokens: int | None = None,
    experts: int | None = None,
) -> Annotation:
    """A range around a piece of training, for ``with`` or as a decorator.

    Args:
        name: One of `NAMES`, or a name of your own: no bar, no line break, 128 characters at most.
        layer: Layer it is part of, from 0.
        microbatch: Microbatch, from 0.
        step: Training step.
        stage: Pipeline stage, from 0.
        phase: Phase of the step, where the name does not tell it.
        tokens: Tokens (rows) this rank sends or receives.
        experts: Experts of this rank that take part.

    Raises:
        ValueError: A name that could not be read back, or a negative number.
    """
    return Annotation(_text(name, layer, microbatch, step, stage, phase, tokens, experts))


@lru_cache(maxsize=1 << 14)
def _text(  # noqa: PLR0913, PLR0917 - positional, so that the cache has one key for one range
    name: str,
    layer: int | None,
    microbatch: int | None,
    step: int | None,
    stage: int | None,
    phase: str | None,
    tokens: int | None,
    experts: int | None,
) -> str:
    """``tv:moe.dispatch|l=3|mb=0``: what profilers write down."""
    if not re.fullmatch(rf"[^|\x00-\x1f]{{1,{_LONGEST_NAME}}}", name):
        message = f"a range needs a name of 1 to {_LONGEST_NAME} characters without '|' or line breaks"
        raise ValueError(message)
    if phase is not None and phase not in _PHASES:
        message = f"phase '{phase}' is none of {', '.join(_PHASES)}"
        raise ValueError(message)
    numbers = {"l": layer, "mb": microbatch, "s": step, "pp": stage, "tok": tokens, "ex": experts}
    return "|".join((f"tv:{name}", *_fields(numbers), *((f"phase={_PHASES[phase]}",) if phase else ())))


def _fields(numbers: Mapping[str, int | None]) -> Iterator[str]:
    for key, number in numbers.items():
        if number is None:
            continue
        if int(number) < 0:
            message = f"the field '{key}' of a range cannot be negative: {number}"
            raise ValueError(message)
        yield f"{key}={int(number)}"


# --- the two listeners -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _domain() -> Any:  # noqa: ANN401 - nvtx has no types
    return nvtx.get_domain(DOMAIN)


@lru_cache(maxsize=1 << 14)
def _attributes(text: str) -> Any:  # noqa: ANN401 - nvtx has no types
    return _domain().get_event_attributes(message=text)


def _record_function(text: str) -> Any:  # noqa: ANN401 - PyTorch is optional
    """An entered ``record_function`` while a PyTorch profiler records in this process, else None.

    Entering one costs 8 µs even when nothing records, so the profiler is asked first.
    """
    torch = sys.modules.get("torch")
    if torch is None or not _profiler_records(torch):
        return None
    entered = torch.profiler.record_function(text)
    entered.__enter__()
    return entered


def _profiler_records(torch: Any) -> bool:  # noqa: ANN401 - PyTorch is optional
    asked = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(asked()) if asked is not None else True  # a PyTorch that cannot be asked: take the 8 µs


# --- modules of PyTorch, without editing them --------------------------------------------------------

_PARTS = (
    ("moe.shared_expert", r"(?:^|\.)shared_experts?$"),
    ("moe.expert", r"(?:^|\.)experts$"),
    ("moe.router", r"(?:^|\.)(?:router|gate)$"),
    ("moe", r"(?:^|\.)(?:moe|block_sparse_moe)$"),
    ("attention", r"(?:^|\.)(?:self_attention|self_attn|attention|attn)$"),
    ("mlp", r"(?:^|\.)(?:mlp|feed_forward)$"),
    ("layer", r"(?:^|\.)(?:layers|blocks|h)\.\d+$"),
)
"""What a module is, by its path in the model; the first pattern that fits counts."""

_METHODS = {
    "token_dispatch": "moe.dispatch",
    "dispatch": "moe.dispatch",
    "token_combine": "moe.combine",
    "combine": "moe.combine",
}
"""Methods of modules and their dispatchers that exchange tokens, in Megatron Core and TorchTitan."""

_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d+)(?:\.|$)")


class AnnotatedModel:
    """What `annotate_model` added to a model; `remove` takes it away again."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self.ranges: list[tuple[str, str]] = []
        """Module path, and the text of its range."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{len(self.ranges)} annotated modules and methods>"

    def remove(self) -> None:
        """Takes every hook and wrapper away; calling it again does nothing."""
        while self._handles:
            self._handles.pop().remove()

    def _hook_forward(self, module: Any, path: str, text: str) -> None:  # noqa: ANN401 - a torch module
        opened: list[Annotation] = []

        def begin(*_: object) -> None:
            opened.append(Annotation(text).__enter__())

        def end(*_: object) -> None:
            opened.pop().__exit__(None, None, None)

        self._handles += [
            module.register_forward_pre_hook(begin),
            module.register_forward_hook(end, always_call=True),
        ]
        self.ranges.append((path, text))

    def _wrap_method(self, owner: Any, name: str, path: str, text: str) -> None:  # noqa: ANN401 - a torch module
        setattr(owner, name, Annotation(text)(getattr(owner, name)))
        self._handles.append(_Wrapped(owner, name))
        self.ranges.append((f"{path}.{name}", text))


class _Wrapped:
    """A method replaced on one instance."""

    def __init__(self, owner: object, name: str) -> None:
        self._owner, self._name = owner, name

    def remove(self) -> None:
        """The method of the class shows again."""
        delattr(self._owner, self._name)


def annotate_model(model: Any, *, names: Mapping[str, str] | None = None) -> AnnotatedModel:  # noqa: ANN401 - a torch module
    """Ranges around the layers, attention, routers, experts and token exchanges of a PyTorch model, by hooks.

    Layers are numbered by their place in ``layers``, ``blocks`` or ``h``. Ranges are those of the forward;
    backward work is recognised by PyTorch's own ranges around its autograd nodes.

    Args:
        model: A ``torch.nn.Module``. It is not changed but for its hooks.
        names: Further modules: a regular expression of the path → a name (one of `NAMES`, or your own).

    Returns:
        What was added; use it in a ``with`` block, or call ``remove``.
    """
    known = (*((name, pattern) for pattern, name in (names or {}).items()), *_PARTS)
    added = AnnotatedModel()
    for path, module in model.named_modules():
        layer = int(match[1]) if (match := _LAYER.search(path)) else None
        name = next((name for name, pattern in known if re.search(pattern, path)), None)
        if name is not None:
            added._hook_forward(module, path, annotate(name, layer=layer).text)  # noqa: SLF001 - its only maker
        for owner, where in _dispatchers(module, path):
            for method, part in _METHODS.items():
                if callable(getattr(type(owner), method, None)) and method not in vars(owner):
                    added._wrap_method(owner, method, where, annotate(part, layer=layer).text)  # noqa: SLF001 - likewise
    return added


def _dispatchers(module: Any, path: str) -> Iterator[tuple[Any, str]]:  # noqa: ANN401 - a torch module
    """The module, and the plain object that some frameworks let dispatch its tokens."""
    yield module, path
    dispatcher = vars(module).get("token_dispatcher")
    if dispatcher is not None:
        yield dispatcher, f"{path}.token_dispatcher"
