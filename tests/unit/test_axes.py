from __future__ import annotations

import polars as pl
import pytest

from traceview.axes import axis_of, axis_rules, with_axis
from traceview.schema import AXES, GROUPS

MEGATRON = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "EMBEDDING_GROUP": "pp",
    "POSITION_EMBEDDING_GROUP": "pp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1": "cp",
    "HYBRID_DP_CP_GROUP_4": "cp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP_GLOO": "dp",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP": "edp",
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": "unknown",
    "MODEL_PARALLEL_GROUP": "unknown",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "unknown",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "unknown",
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": "unknown",
}
MESH = {
    "mesh_ep": "ep",
    "mesh_efsdp": "edp",
    "mesh_etp": "etp",
    "mesh_tp": "tp",
    "mesh_pp": "pp",
    "mesh_cp": "cp",
    "mesh_fsdp": "dp",
    "mesh_dp_replicate": "dp",
    "mesh_dp_shard": "dp",
    "mesh_dp_shard_cp": "dp",
    "mesh_batch": "dp",
    "mesh_loss": "dp",
    "mesh_dim_0": "unknown",
    "tp:0": "tp",
    "step_metrics": "unknown",
}


@pytest.mark.parametrize(("desc", "axis"), [*MEGATRON.items(), *MESH.items()])
def test_the_description_names_the_axis(desc: str, axis: str) -> None:
    assert axis_of(desc) == axis


@pytest.mark.parametrize("desc", [*MEGATRON, *MESH])
def test_a_description_that_speaks_is_never_overruled_by_size_or_name(desc: str) -> None:
    assert axis_of(desc, "ep_size_8", size=8, world_size=8) == axis_of(desc)


@pytest.mark.parametrize("desc", [None, "", "undefined", "default_pg", "17"])
def test_a_group_of_all_ranks_whose_description_is_silent_is_the_world(desc: str | None) -> None:
    assert axis_of(desc, "0", size=64, world_size=64) == "world"
    assert axis_of(desc, "0", size=32, world_size=64) == "unknown"


@pytest.mark.parametrize(("size", "world_size"), [(None, 8), (8, None), (None, None)])
def test_an_unknown_size_proves_no_world(size: int | None, world_size: int | None) -> None:
    assert axis_of("undefined", "0", size=size, world_size=world_size) == "unknown"


def test_the_name_speaks_when_the_description_is_silent() -> None:
    assert axis_of("undefined", "ep_size_8", size=8, world_size=8) == "ep"
    assert axis_of(None, "mesh_tp", size=2, world_size=8) == "tp"


def test_a_frame_gets_the_axis_of_each_row_in_order() -> None:
    groups = pl.DataFrame(
        {
            "desc": ["mesh_ep", None, "undefined", "mesh_ep", None],
            "name": ["3", "0", None, "3", None],
            "size": [2, 4, 2, 4, None],
            "axis": ["tp"] * 5,
        }
    )
    placed = with_axis(groups, desc="desc", name="name", size="size", world_size=4)
    assert placed["axis"].to_list() == ["ep", "world", "unknown", "ep", "unknown"]
    assert placed.drop("axis").equals(groups.drop("axis"))
    assert placed.schema["axis"] == GROUPS.columns["axis"].dtype
    lazy = with_axis(groups.lazy(), desc="desc", name="name", size="size", world_size=4)
    assert lazy.collect().equals(placed)


def test_categorical_columns_and_empty_frames_are_fine() -> None:
    groups = pl.DataFrame({"desc": ["mesh_ep"], "name": ["1"], "size": [2]})
    groups = groups.with_columns(pl.col("desc", "name").cast(pl.Categorical))
    placed = with_axis(groups, desc="desc", name="name", size="size", world_size=None)
    assert placed["axis"].to_list() == ["ep"]
    empty = with_axis(groups.clear(), desc="desc", name="name", size="size", world_size=None)
    assert empty.columns == ["desc", "name", "size", "axis"]


def test_every_axis_but_the_world_has_a_rule() -> None:
    # the world is told by size, never by words
    assert {rule.payload["axis"] for rule in axis_rules().rules} == set(AXES) - {"world"}
