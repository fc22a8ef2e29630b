"""Throughput and MFU of runs and of figures: by the definition, and withheld where something is not known."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

import traceview as tv
from traceview import flops, hardware, models, utilization
from traceview.cli import main
from traceview.documents import Fields
from traceview.errors import UsageError
from traceview.recipe import Recipe
from traceview.reports import layout
from traceview.reports.mfu import calculation, sentence
from traceview.run import Run
from traceview.synth import PRESETS, recipe, write
from traceview.terms import Asked, Recorded, terms
from traceview.trace import Facts, Trace
from traceview.utilization import Utilization, of_run, of_tflops, of_throughput

if TYPE_CHECKING:
    from pathlib import Path

MODEL = models.named("deepseek-v3")
H100 = "NVIDIA H100 80GB HBM3"
RECORD = Asked.of(model="deepseek-v3", gpu="GB300")
PLAN = replace(PRESETS["ep8-balanced"], steps=6, layers=1)


def windows(times: dict[int, list[int]], *, devices: int = 1) -> pl.DataFrame:
    """Step times in ns per rank, as `breakdown` by rank and step gives them."""
    rows = [
        {"rank": rank, "device": device, "step": step, "window_ns": time}
        for rank, listed in times.items()
        for device in range(devices)
        for step, time in enumerate(listed)
    ]
    return pl.DataFrame(
        rows, schema={"rank": pl.Int32, "device": pl.Int32, "step": pl.Int64, "window_ns": pl.Int64}
    )


def run(*, device: str | None = H100, world_size: int | None = 256, said: Recipe | None = None) -> Run:
    facts = Facts(path="/job/rank0.json", format="kineto", rank=0, world_size=world_size, device_name=device)
    return Run("job", (Trace(facts, {}),), recipe=said or Recipe())


def withheld(found: Utilization) -> str:
    return "\n".join(found.notes.filter(code="mfu.withheld")["text"])


# --- by the definition -------------------------------------------------------------------------------


def test_throughput_is_tokens_over_time_and_gpus_at_the_median_and_the_p95_step() -> None:
    asked = Asked.of(model=MODEL, seq_len=4096, global_batch_size=15360)
    second = 10**9
    times = [38 * second, 39 * second, 40 * second, 41 * second, 60 * second]
    found = of_run(run(), windows({0: times}), asked)
    row = found.frame.row(0, named=True)
    assert row["tokens_per_s_per_gpu"] == pytest.approx(15360 * 4096 / 40 / 256)
    p95 = 41 + 0.8 * (60 - 41)  # linear interpolation: place 0.95 × 4 = 3.8
    assert row["tokens_per_s_per_gpu_p95"] == pytest.approx(15360 * 4096 / p95 / 256)
    assert row["tokens_per_s_per_gpu_low"] <= row["tokens_per_s_per_gpu"] <= row["tokens_per_s_per_gpu_high"]
    per_token = flops.per_token(MODEL, 4096).per_token
    assert row["flops_per_s_per_gpu"] == pytest.approx(row["tokens_per_s_per_gpu"] * per_token)
    assert row["mfu_ratio"] == pytest.approx(row["flops_per_s_per_gpu"] / 989e12)
    assert row["achieved_ratio"] == pytest.approx(row["flops_per_s_per_gpu"] / 795e12)
    assert row["mfu_low_ratio"] <= row["mfu_ratio"] <= row["mfu_high_ratio"]
    assert row["withheld"] is None
    assert found.frame["precision"].to_list() == ["bf16", "fp8"]
    assert found.notes.is_empty()


def test_the_published_step_of_the_record_batch_gives_the_published_throughput() -> None:
    # 15,360 sequences in 38.3 s on 256 GPUs were published as 6,422 tokens/s/GPU and 1,670 TFLOP/s/GPU
    asked = Asked.of(model=MODEL, seq_len=4096, global_batch_size=15360)
    found = of_run(run(device="NVIDIA GB300"), windows({0: [38_270_000_000]}), asked)
    assert found.throughput
    assert found.throughput.median == pytest.approx(6422, rel=1e-3)
    assert found.tflops_per_gpu == pytest.approx(1670, rel=1e-3)


def test_few_steps_have_no_interval() -> None:
    asked = Asked.of(model=MODEL, seq_len=4096, tokens_per_step=10**6)
    row = of_run(run(), windows({0: [10, 20]}), asked).frame.row(0, named=True)
    assert row["tokens_per_s_per_gpu_low"] is None
    assert row["mfu_low_ratio"] is None
    assert row["mfu_ratio"] is not None


def test_a_figure_becomes_the_published_mfu_and_comes_back() -> None:
    found = of_throughput(6338, RECORD)
    assert found.frame.select("precision", pl.col("mfu_ratio").round(3)).rows() == [
        ("bf16", 0.673),
        ("fp8", 0.336),
        ("fp4", 0.112),
    ]
    assert found.tflops_per_gpu
    assert round(found.tflops_per_gpu) == 1648
    back = of_tflops(found.tflops_per_gpu, RECORD)
    assert back.throughput
    assert back.throughput.median == pytest.approx(6338)


def test_the_other_published_peaks_and_one_precision_can_be_chosen() -> None:
    asked = replace(RECORD, precision="fp8", peak_set="ml-eng")
    row = of_throughput(6338, asked).frame.row(0, named=True)
    assert row["peak_flops_per_s"] == 5000e12
    assert row["peak_set"] == "ml-eng"
    assert row["mfu_ratio"] == pytest.approx(0.330, abs=5e-4)


def test_the_convention_is_told_and_changes_the_count() -> None:
    titan = of_throughput(6338, replace(RECORD, convention="torchtitan"))
    row = titan.frame.row(0, named=True)
    assert (row["convention"], row["is_causal"], row["mtp_layers"]) == ("torchtitan", False, 0)
    assert row["flops_per_token"] == pytest.approx(281.15e9, rel=1e-4)


def test_the_headline_is_the_precision_of_the_recipe_but_torchtitan_divides_by_bf16() -> None:
    said = Recipe(model=MODEL, seq_len=4096, tokens_per_step=10**6, precision="fp8")
    job = run(said=said)
    assert of_run(job, windows({0: [10]}), Asked()).precision == "fp8"
    assert of_run(job, windows({0: [10]}), Asked(convention="torchtitan")).precision == "bf16"
    assert of_run(job, windows({0: [10]}), Asked(convention="torchtitan", precision="fp8")).precision == "fp8"


def test_a_gpu_without_bfloat16_is_held_against_fp16() -> None:
    found = of_throughput(100, replace(RECORD, gpu=hardware.named("V100")))
    assert found.frame["precision"].to_list() == ["fp16"]
    assert found.precision == "fp16"


# --- who says what -----------------------------------------------------------------------------------


def test_what_was_asked_goes_before_the_traces_and_those_before_the_recipe() -> None:
    said = Recipe(gpu=hardware.named("GB300"), gpus=64, tokens_per_step=5, seq_len=7)
    recorded = Recorded(device_names=frozenset({H100}), ranks=8)
    found = terms(Asked(), recorded, said)
    assert found.gpu
    assert (found.gpu.name, found.gpus, found.tokens_per_step, found.length) == ("H100", 8, 5, 7)
    assert found.said_by == {
        "gpu": "recorded",
        "gpus": "recorded",
        "tokens_per_step": "run.toml",
        "length": "run.toml",
    }
    asked = terms(Asked(gpus=16, tokens_per_step=6), recorded, said)
    assert (asked.gpus, asked.tokens_per_step) == (16, 6)
    assert asked.said_by["gpus"] == "as asked"


def test_a_factor_that_was_asked_for_makes_the_product_anew() -> None:
    said = Recipe(seq_len=4096, global_batch_size=10, tokens_per_step=40960)
    assert terms(Asked(global_batch_size=20), Recorded(), said).tokens_per_step == 20 * 4096
    assert terms(Asked(seq_len=8192), Recorded(), said).tokens_per_step == 10 * 8192
    assert terms(Asked(seq_len=8192), Recorded(), Recipe(tokens_per_step=3)).tokens_per_step == 3
    assert terms(Asked(packed_len=100.5), Recorded(), said).tokens_per_step == 40960
    assert terms(Asked(packed_len=100.5), Recorded(), said).length == 100.5


def test_what_contradicts_the_traces_is_said() -> None:
    said = Recipe(gpu=hardware.named("GB300"), gpus=64)
    found = of_run(run(world_size=8, said=said), windows({0: [10]}), Asked.of(gpu="B200"))
    texts = found.notes.filter(severity="warning")["text"].to_list()
    assert texts == [
        "as asked, the GPU is B200; the traces name H100",
        "run.toml, the GPU is GB300; the traces name H100",
        "run.toml, the job has 64 GPUs; the traces record 8 ranks",
    ]


# --- withheld ----------------------------------------------------------------------------------------


def test_nothing_known_is_nothing_told_and_every_reason_given() -> None:
    found = of_run(run(device=None, world_size=None), windows({0: [10, 10]}), Asked())
    assert found.throughput is None
    assert found.tflops_per_gpu is None
    assert found.headline is None
    row = found.frame.row(0, named=True)
    assert {
        row[name] for name in ("tokens_per_s_per_gpu", "flops_per_s_per_gpu", "mfu_ratio", "precision")
    } == {None}
    for option in ("--tokens-per-step", "--gpus", "--model", "--gpu,", "run.toml"):
        assert option in withheld(found)
        assert option in row["withheld"]
    assert sentence(found).startswith("Throughput and MFU cannot be told")


def test_without_a_model_there_are_still_tokens() -> None:
    found = of_run(run(), windows({0: [10**9]}), Asked(tokens_per_step=256))
    assert found.throughput
    assert found.throughput.median == pytest.approx(1)
    assert found.tflops_per_gpu is None
    assert found.frame["mfu_ratio"].to_list() == [None, None]
    assert "--model" in withheld(found)
    assert sentence(found).startswith("1.000 tokens/s/GPU; TFLOP/s and MFU need more")


def test_a_model_without_the_length_of_its_sequences_has_no_flops() -> None:
    found = of_run(run(), windows({0: [10]}), Asked.of(model=MODEL, tokens_per_step=100))
    assert found.flops is None
    assert "--seq-len" in withheld(found)


def test_a_window_that_is_no_step_has_no_throughput() -> None:
    whole = windows({0: [10]}).with_columns(step=pl.lit(None, pl.Int64))
    found = of_run(run(), whole, Asked.of(model=MODEL, seq_len=4096, tokens_per_step=100))
    assert found.throughput is None
    assert "tells steps apart" in withheld(found)


def test_ranks_with_several_devices_do_not_count_as_gpus() -> None:
    asked = Asked.of(model=MODEL, seq_len=4096, tokens_per_step=100)
    found = of_run(run(world_size=1), windows({0: [10]}, devices=8), asked)
    assert found.throughput is None
    assert "several devices" in withheld(found)
    told = of_run(run(world_size=1), windows({0: [10]}, devices=8), replace(asked, gpus=8))
    assert told.throughput


def test_unknown_or_differing_devices_have_no_peak() -> None:
    asked = Asked.of(model=MODEL, seq_len=4096, tokens_per_step=100)
    assert "no peak is known of 'NVIDIA H100'" in withheld(
        of_run(run(device="NVIDIA H100"), windows({0: [10]}), asked)
    )
    pair = run()
    other = Trace(replace(pair.traces[0].facts, rank=1, device_name="NVIDIA B200"), {})
    mixed = replace(pair, traces=(*pair.traces, other))
    found = of_run(mixed, windows({0: [10], 1: [10]}), asked)
    assert "the devices differ (NVIDIA B200, NVIDIA H100 80GB HBM3)" in withheld(found)
    assert found.tflops_per_gpu
    assert found.headline is None
    assert sentence(found).endswith("MFU needs a peak.")


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"precision": "fp4", "gpu": "H100"}, "no fp4 peak of H100"),
        ({"peak_set": "sparse", "gpu": "H100"}, "no peak set"),
        ({"convention": "palm"}, "megatron"),
        ({"model": "gpt-5"}, "no model"),
        ({"gpus": 0}, "gpus must be at least 1"),
        ({"tokens_per_step": -1}, "at least 1"),
        ({"packed_len": float("nan")}, "at least 1"),
        ({"mtp_layers": -1}, "at least 0"),
        ({"batch": 3}, "mfu does not take batch"),
    ],
)
def test_what_cannot_be_asked_is_refused(said: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        of_throughput(1.0, Asked.of(**{"model": MODEL, "seq_len": 4096} | said))


def test_a_throughput_must_be_a_positive_number_and_tflops_need_a_model() -> None:
    for tokens in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="positive"):
            of_throughput(tokens, RECORD)
    with pytest.raises(UsageError, match="--model"):
        of_tflops(1648, Asked.of(gpu="GB300"))


# --- synthetic and public runs -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(PLAN, folder)
    recipe.write(PLAN, folder)
    return folder


def test_a_synthetic_run_reaches_what_its_truth_says(job: Path) -> None:
    found = tv.mfu(tv.load(job))
    truth = json.loads((job / "truth.json").read_text())
    used = {row["step"] for row in tv.breakdown(tv.load(job), by=("step",)).frame.to_dicts()}
    windows_ns = [
        figures["window_ns"]
        for rank in truth["ranks"]
        for step, figures in rank["steps"].items()
        if int(step) in used
    ]
    assert found.throughput
    assert found.throughput.median == pytest.approx(8 * 4096 / (median(windows_ns) * 1e-9) / 8)
    row = found.headline
    assert row
    assert (row["model"], row["gpu"], row["gpu_count"], row["tokens_per_step"]) == (
        "synthetic",
        "H100",
        8,
        8 * 4096,
    )
    assert row["withheld"] is None


def test_the_recipe_of_a_synthetic_run_counts_the_products_of_its_layers() -> None:
    h, tokens = PLAN.hidden, PLAN.tokens
    weights = 3 * h * h + h * h + 3 * h * PLAN.expert_hidden * (PLAN.top_k + 1) + PLAN.vocabulary * h
    model = models.Model.of(
        Fields(tomllib.loads(recipe.document(PLAN))["model"], "run.toml"), name="", source=""
    )
    counted = flops.per_token(model, tokens)
    assert counted.per_token == pytest.approx(6 * weights + 6 * tokens / 2 * 2 * h)


def test_profile_subsets_use_the_size_of_the_whole_job(job: Path) -> None:
    whole, part = tv.load(job), tv.load(job, ranks=[0, 3])
    assert tv.mfu(part).terms.gpus == 8
    assert tv.mfu(part).frame["tokens_per_step"].to_list() == tv.mfu(whole).frame["tokens_per_step"].to_list()


def test_a_public_run_of_eight_ranks_has_a_throughput_once_its_tokens_are_said(traces: Path) -> None:
    folder = next((traces / "pytorch" / "KellerJordan-modded-nanogpt").iterdir())
    loaded = tv.load(folder)
    found = tv.mfu(loaded, tokens_per_step=10**6, steps="auto")
    stepped = tv.breakdown(loaded, by=("rank", "step")).frame.drop_nulls("step")
    if stepped.is_empty():
        assert found.throughput is None
        assert "tells steps apart" in withheld(found)
        return
    assert found.throughput
    middle = float(median(stepped["window_ns"].to_list()))
    assert found.throughput.median == pytest.approx(10**15 / middle / 8)


# --- the command -------------------------------------------------------------------------------------


def call(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_calculator_prints_the_record_with_all_it_rests_on() -> None:
    result = call("mfu", "--model", "deepseek-v3", "--tokens-per-second-per-gpu", 6338, "--gpu", "GB300")
    assert result.exit_code == 0
    for text in (
        "1,648 TFLOP/s/GPU", "259.993", "megatron: causal half, MTP 1", "67.3", "33.6", "2,450", "4,900",
        "NVIDIA/dgxc-benchmarking", "4,096 tokens (assumed, as in the published runs)", "6,422 tokens/s/GPU",
    ):  # fmt: skip
        assert text in result.stdout
    back = call("mfu", "--model", "deepseek-v3", "--tflops-per-gpu", 1648, "--gpu", "GB300")
    assert "6,339 tokens/s/GPU" in back.stdout


@pytest.mark.parametrize("form", ["json", "csv", "md"])
def test_the_calculator_answers_in_every_format(form: str) -> None:
    result = call(
        "mfu", "--model", "kimi-k2", "--tokens-per-second-per-gpu", 5372, "--gpu", "GB300", "-f", form
    )
    assert result.exit_code == 0
    assert "kimi-k2" in result.stdout
    if form == "json":
        document = json.loads(result.stdout)
        assert document["schema"] == "traceview/mfu/1"
        assert document["rows"][0]["flops_per_s_per_gpu"] == pytest.approx(1099e12, rel=0.005)


def test_a_condition_on_the_mfu_fails_a_pipeline(job: Path) -> None:
    assert call("mfu", job, "--fail-on", "mfu_ratio<0.9", "--peak", "bf16").exit_code == 1
    assert call("mfu", job, "--fail-on", "mfu_ratio>0.9").exit_code == 0
    assert call("mfu", job, "--fail-on", "nothing<1").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [(), ("--tokens-per-second-per-gpu", 3, "--tflops-per-gpu", 3), ("traces", "--tflops-per-gpu", 3)],
)
def test_a_throughput_is_measured_or_known(arguments: tuple[object, ...]) -> None:
    result = call("mfu", *arguments)
    assert result.exit_code == 2
    assert "measured or known" in result.stderr


def test_summary_and_info_show_what_the_recipe_adds(job: Path, tmp_path: Path) -> None:
    page = call("summary", job).stdout
    assert "throughput" in page
    assert "(BF16 peak 989, dgxc); megatron: causal half, no MTP" in page
    assert "synthetic, H100, 4,096 tokens per sequence" in call("info", job).stdout
    document = json.loads(call("summary", job, "-f", "json").stdout)
    assert document["mfu"][0]["model"] == "synthetic"
    write(replace(PLAN, ranks=2, expert_parallel=2, steps=2), tmp_path)
    assert "throughput" not in call("summary", tmp_path).stdout
    (tmp_path / "run.toml").write_text("gpus = 512\ngbs = 3\n", encoding="utf-8")
    page = call("summary", tmp_path).stdout
    assert "the job has 512 GPUs; the traces record 2 ranks" in page
    assert "unknown field 'gbs'" in page


def test_a_bad_recipe_is_a_usage_error_without_a_traceback(job: Path, tmp_path: Path) -> None:
    path = next(job.glob("rank0*"))
    (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "run.toml").write_text("seq_len = 'long'", encoding="utf-8")
    result = call("mfu", tmp_path)
    assert result.exit_code == 2
    assert "'seq_len' must be a whole number" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_hostile_device_name_stays_text() -> None:
    found = of_run(run(device="H100\x1b[2J" + "x" * 10_000), windows({0: [10]}), Asked())
    assert len(withheld(found)) < 1500
    assert "\x1b" not in layout.plain(calculation(found))


def test_synth_writes_the_recipe_beside_its_traces(tmp_path: Path) -> None:
    result = call("synth", "ep8-rccl", "-o", tmp_path)
    assert result.exit_code == 0
    assert str(tmp_path / "run.toml") in result.stdout
    read = tv.load(tmp_path).recipe
    assert read.gpu
    assert (read.gpu.name, read.gpus, read.parallel["ep"]) == ("MI300X", 8, 8)


def test_the_table_says_what_its_columns_are() -> None:
    assert list(of_throughput(1.0, RECORD).frame.columns) == list(utilization.RESULT.columns)
    assert all(column.doc for column in utilization.RESULT.columns.values())
