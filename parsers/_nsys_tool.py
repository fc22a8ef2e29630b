"""Reports of Nsight Systems (``.nsys-rep``), exported by the ``nsys`` of whoever has one.

The format is closed, and only an ``nsys`` at least as new as the report reads it. What the program prints may
quote the job's command line, so nobody looks at it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT_MAGIC = b"NVIDIA Tegra Profiler Report "
_VERSION = re.compile(rb"(\d{4})@(\d+)@(\d+)@")

_TIMEOUT_S = 1800
_WITH_BLOBS = ["--include-blobs", "true"]  # such are NCCL's payloads
_EXPORTS = (".sqlite", ".sqlite.gz", "_pqtdir", "_arwdir", ".arrows", ".jsonl")


@contextmanager
def exported(plain: Path, shown: Path, head: bytes) -> Iterator[Path]:
    """A SQLite export of a report, which is removed afterwards.

    Args:
        plain: The report, not compressed.
        shown: What the user knows it by.
        head: Its first bytes.

    Raises:
        UnknownFormatError: No program here can export it, or an export lies beside it; the message has the
            version of the report and the command to run.
    """
    beside = next((name for suffix in _EXPORTS if (name := _sibling(shown, suffix)).exists()), None)
    if beside is not None:
        hint = f"pass that instead: {shlex.quote(str(beside))}"
        raise UnknownFormatError.of(shown, f"{_what(head)}; its export lies beside it", hint)
    program = shutil.which("nsys")
    if program is None:
        raise UnknownFormatError.of(
            shown, _what(head), f"export it with an nsys at least as new: {_command(shown)}"
        )
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        target = Path(folder) / "export.sqlite"
        # the second attempt is for a program that does not know the options of the first
        if failure := _attempt(program, plain, target, _WITH_BLOBS) and _attempt(program, plain, target, []):
            what = f"{_what(head)}, and the nsys on this machine could not export it ({failure})"
            hint = f"export it with an nsys at least as new: {_command(shown)}"
            raise UnknownFormatError.of(shown, what, hint)
        yield target


def _attempt(program: str, plain: Path, target: Path, options: list[str]) -> str:
    """Why the program did not write ``target``; empty when it did."""
    target.unlink(missing_ok=True)
    command = [program, "export", "--type", "sqlite", *options, "--output", str(target), str(plain)]
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the user's own program
            command,
            cwd=target.parent,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_TIMEOUT_S // 60} minutes"
    except OSError as error:
        return error.strerror or type(error).__name__
    if done.returncode:
        return f"exit status {done.returncode}"
    return "" if target.is_file() else "it wrote nothing"


def _what(head: bytes) -> str:
    version = _VERSION.match(head, len(REPORT_MAGIC))
    year = ".".join(part.decode() for part in version.groups()) if version else "2021 to 2023"
    return f"the report of Nsight Systems {year} itself, whose format is closed"


def _command(report: Path) -> str:
    target = shlex.quote(str(_sibling(report, ".sqlite")))
    return f"nsys export --type sqlite --output {target} {shlex.quote(str(report))}"


def _sibling(report: Path, suffix: str) -> Path:
    return report.with_name(report.name.split(".nsys-rep")[0].removesuffix(".qdrep") + suffix)
