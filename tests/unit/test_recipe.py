"""``run.toml`` beside traces: what is read, what is passed over with a remark, what is refused."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceview as tv
from traceview import documents, hardware, inputs, models
from traceview.errors import UsageError
from traceview.recipe import FILE, Recipe, read
from traceview.synth import Workload, write

WHOLE = """
model = "deepseek-v3"
seq_len = 4096
global_batch_size = 15360
gpu = "GB300"
gpus = 256
precision = "fp8"
mtp_layers = 1
[parallel]
ep = 32
pp = 2
vpp = 8
"""
TINY = Workload(ranks=2, expert_parallel=2, experts=4, top_k=2, steps=1, layers=1)


def beside(folder: Path, text: str) -> Path:
    (folder / FILE).write_text(text, encoding="utf-8")
    return folder


def test_everything_said_is_read_and_tokens_are_batch_times_length(tmp_path: Path) -> None:
    recipe, notes = read(beside(tmp_path, WHOLE))
    assert recipe == Recipe(
        model=models.named("deepseek-v3"),
        seq_len=4096,
        global_batch_size=15360,
        tokens_per_step=4096 * 15360,
        gpu=hardware.named("GB300"),
        gpus=256,
        precision="fp8",
        mtp_layers=1,
        parallel={"pp": 2, "vpp": 8, "ep": 32},
    )
    assert notes.is_empty()


@pytest.mark.parametrize("text", ["", "# nothing yet"])
def test_a_recipe_may_say_nothing(text: str, tmp_path: Path) -> None:
    assert read(beside(tmp_path, text))[0] == Recipe()


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    recipe, notes = read(tmp_path)
    assert recipe == Recipe()
    assert notes.is_empty()


def test_unknown_fields_are_passed_over_with_the_nearest_one_named(tmp_path: Path) -> None:
    text = "global_batchsize = 4\nqqq = 1\n[parallel]\nexpert = 8\neep = 4\n"
    recipe, notes = read(beside(tmp_path, text))
    assert recipe == Recipe()
    assert set(notes["code"]) == {"recipe.unknown_field"}
    texts = "\n".join(notes["text"])
    assert "'global_batchsize' is passed over; nearest: global_batch_size" in texts
    assert "'qqq' is passed over\n" in texts
    assert "'eep' is passed over; nearest: " in texts
    assert len(notes) == 4


def test_tokens_that_are_not_the_product_win_and_are_remarked_on(tmp_path: Path) -> None:
    text = "seq_len = 10\nglobal_batch_size = 10\ntokens_per_step = 90"
    recipe, notes = read(beside(tmp_path, text))
    assert recipe.tokens_per_step == 90
    assert notes["code"].to_list() == ["recipe.tokens_differ"]
    assert "90" in notes["text"].item()
    assert "100" in notes["text"].item()


def test_the_model_may_be_a_table_or_a_file_beside_the_recipe(tmp_path: Path) -> None:
    shape = """layers = 2\nhidden = 64\nvocabulary = 100\nexperts = 8\ntop_k = 2\nexpert_ffn = 32
grouped_query = { heads = 4, kv_heads = 2, head_dim = 16 }"""
    (tmp_path / "tiny.toml").write_text(shape, encoding="utf-8")
    by_file, _ = read(beside(tmp_path, 'model = "tiny.toml"'))
    by_table, _ = read(beside(tmp_path, f"[model]\nname = 'tiny'\nsource = 'tiny.toml'\n{shape}"))
    assert by_file.model
    assert by_file == by_table


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seq_len = ", "not TOML"),
        ("seq_len = '4096'", "'seq_len' must be a whole number"),
        ("seq_len = 0", "'seq_len' must be a whole number"),
        ("seq_len = true", "'seq_len' must be a whole number"),
        ("gpus = 1e3", "'gpus' must be a whole number"),
        ("global_batch_size = 99999999999999999999", "'global_batch_size' must be a whole number"),
        ("model = 'gpt-5'", "no model 'gpt-5'"),
        ("model = 3", "'model' must be a text"),
        ("model = '../config.json'", "in their folder"),
        ("model = '/etc/passwd.json'", "in their folder"),
        ("gpu = 'TPU'", "no facts about a GPU"),
        ("precision = 'int3'", "'precision' must be one of bf16"),
        ("parallel = 8", "'parallel' must be a table"),
        ("[parallel]\nep = 'all'", "'ep' must be a whole number"),
        ("[model]\nlayers = 3", "'hidden' is missing"),
        ("#" * (documents.LARGEST_FILE + 1), "larger than"),
    ],
)
def test_a_value_that_cannot_be_is_refused_plainly(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(beside(tmp_path, text))


def test_a_folder_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path)


@given(st.text(max_size=60))
def test_any_text_is_a_recipe_or_a_plain_refusal(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_text(text, encoding="utf-8", errors="replace")
        try:
            recipe, _ = read(Path(folder))
        except UsageError:
            return
        assert isinstance(recipe, Recipe)


def test_a_run_knows_the_recipe_beside_its_traces_and_its_remarks(tmp_path: Path) -> None:
    write(TINY, tmp_path)
    beside(tmp_path, WHOLE + "expert = 3\n")
    run = tv.load(tmp_path)
    assert run.recipe.gpus == 256
    assert run.recipe.parallel["ep"] == 32
    assert "recipe.unknown_field" in run.diagnostics["code"].to_list()
    assert tv.load(next(tmp_path.glob("rank0*"))).recipe == run.recipe


def test_the_recipe_of_ranks_in_folders_of_their_own_lies_above_them(tmp_path: Path) -> None:
    for path in write(TINY, tmp_path / "all")[:2]:
        folder = tmp_path / f"rank_{path.name[4]}"
        folder.mkdir()
        path.rename(folder / path.name)
    beside(tmp_path, "gpus = 2")
    assert tv.load(str(tmp_path / "rank_*" / "*")).recipe.gpus == 2


def test_what_lies_beside_a_spooled_standard_input_is_not_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(TINY, tmp_path / "traces", compress=False)[0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    inputs._spooled_stdin.cache_clear()
    beside(tmp_path, "gpus = 2")
    assert tv.load("-").recipe == Recipe()
    inputs._spooled_stdin.cache_clear()
