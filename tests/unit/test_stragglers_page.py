"""The page of ``traceview stragglers``: from a small table to text, and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

from traceview.analyzers import stragglers as analysis
from traceview.cli import main
from traceview.reports import layout, stragglers
from traceview.reports.about import About
from traceview.synth import Straggler, Workload, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COUNTED = [
    name
    for name, column in analysis.RESULT.columns.items()
    if column.dtype == pl.Int64 and not column.nullable
]
ABOUT = About("job", (0, 1, 2), 3, ("kineto",), ("H100",), ("host",))


def _rows(*rows: dict[str, Any]) -> pl.DataFrame:
    usual = dict.fromkeys(COUNTED, 0) | {"last_ratio": 0.0, "step_count": 2, "complete_count": 10}
    return analysis.RESULT.frame(pl.DataFrame([usual | row for row in rows], infer_schema_length=None))


def _text(rows: pl.DataFrame, matrix: pl.DataFrame | None = None) -> str:
    return layout.plain(stragglers.page(ABOUT, rows, [], matrix=matrix))


GUILTY = {
    "rank": 1,
    "blamed_ns": 6_000_000,
    "blamed_count": 7,
    "cause": "late_launch",
    "late_launch_ns": 4_500_000,
    "unknown_cause_ns": 1_500_000,
    "kind": "persistent",
}
NOBODY = {"rank": None, "unblamed_ns": 2_000_000, "unblamed_count": 3}


def test_the_sentence_names_the_rank_its_cost_per_step_its_share_and_its_cause() -> None:
    assert stragglers.sentence(_rows(GUILTY, NOBODY)) == (
        "Rank 1 makes others wait 3.00 ms per step: 75.0 % of all exposed waiting, "
        "75.0 % of that because its host launched late."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "wandering"}, "No straggler is persistent. Rank 1 makes"),
        ({"cause": None}, "mostly for reasons the traces do not tell"),
        ({"victim": 2}, "Rank 1 makes rank 2 wait"),
        ({"rank": None, "layer": 4}, "Late ranks make others wait 3.00 ms per step, layer 4"),
        ({"step_count": 0}, "wait 6.00 ms: "),
        ({"suspect": "host", "evidence": "it idles"}, "Suspect: its host; it idles."),
        ({"suspect": "gpu", "evidence": "it is slow"}, "Suspect: its GPU; it is slow."),
    ],
)
def test_the_sentence_says_what_is_special(changes: dict[str, Any], said: str) -> None:
    assert said in stragglers.sentence(_rows(GUILTY | changes))


def test_the_sentence_blames_nobody_where_nobody_is_to_blame() -> None:
    assert stragglers.sentence(_rows(NOBODY)).endswith("2.00 ms of exposed waiting is blamed on nobody.")
    assert stragglers.sentence(analysis.RESULT.empty()) == stragglers.NONE


def test_the_table_counts_unblamed_waiting_so_that_shares_add_up() -> None:
    lines = _text(_rows(GUILTY, NOBODY)).splitlines()
    guilty = next(line for line in lines if line.startswith("1 "))
    nobody = next(line for line in lines if line.startswith(stragglers.NOBODY))
    assert guilty.split() == ["1", "late", "launch", "persistent", "3.00", "75.0", "7", "10", "–", "–"]
    assert nobody.split() == ["nobody", "1.00", "25.0", "0", "10", "–", "–"]


def test_the_matrix_has_a_row_per_late_rank_and_a_column_per_rank() -> None:
    pairs = [GUILTY | {"victim": 0, "blamed_ns": 4_000_000}, GUILTY | {"victim": 2, "blamed_ns": 2_000_000}]
    text = _text(_rows(GUILTY), _rows(*pairs))
    assert "rank     0  1     2\n1     2.00     1.00\n" in text


def test_a_residual_between_hosts_is_said() -> None:
    assert "agree within 12.0 µs" in _text(_rows(GUILTY | {"uncertainty_ns": 12_000}))
    assert "agree within" not in _text(_rows(GUILTY | {"uncertainty_ns": 0}))


def test_rows_beyond_the_limit_are_counted() -> None:
    rows = _rows(*(GUILTY | {"rank": rank} for rank in range(stragglers.ROWS + 3)))
    assert "and 3 more rows" in _text(rows)


# --- the command -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    late = Straggler(2, "slow_kernels", 1.5)
    plan = Workload(ranks=4, ranks_per_host=4, expert_parallel=4, steps=2, layers=1, stragglers=(late,))
    write(plan, folder)
    return folder


def _shown(job: Path, *options: Sequence[str]) -> str:
    result = CliRunner().invoke(main, ["stragglers", str(job), *map(str, options)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_page_shows_table_matrix_and_sentence(job: Path) -> None:
    lines = _shown(job).splitlines()
    assert any(line.startswith("2     slower kernels  persistent") for line in lines)
    assert "of the rank above" in "".join(lines)
    assert lines[-1].startswith("Rank 2 makes others wait")


def test_another_grain_shows_no_matrix(job: Path) -> None:
    page = _shown(job, "--by", "layer")
    assert "of the rank above" not in page
    assert "Late ranks make others wait" in page


def test_a_persistent_straggler_can_fail_a_pipeline(job: Path) -> None:
    result = CliRunner().invoke(main, ["stragglers", str(job), "--fail-on", "persistent_ratio>0.5"])
    assert result.exit_code == 1
    assert "rank=2" in result.stderr
