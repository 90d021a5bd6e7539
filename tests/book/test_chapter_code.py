"""What a chapter defines in front of the reader is what the package runs: their syntax trees are equal."""

import ast
import functools
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
TAUGHT = {  # what each chapter must define; what else it defines under a name of the package is compared too
    "streams-and-overlap": {"copy_ahead", "copy_while_computing"},
    "memory-hierarchy": {"chase", "cycle", "triad"},
    "reuse": {
        "CountedMatrix",
        "naive_product",
        "tiled_product",
        "loops_ijk",
        "loops_ikj",
        "loops_tiled",
    },
    "systolic-arrays": {"output_stationary_step", "weight_stationary_step"},
    "throughput": {"training_step"},
    "attention-and-inference": {"attention_in_tiles", "kv_bytes"},
    "allreduce": {"allreduce_naive", "allreduce_ring", "allreduce_tree", "all_gather", "reduce_scatter"},
    "multi-gpu-scratch": {"lenet", "get_params", "allreduce", "split_batch", "train_batch", "train"},
    "compression-and-luck": {"TopK"},
    "data-parallel": {"replicate"},
    "process-per-device": {"train_digits"},
    "sharding": {"Unit", "shard"},
    "tensor-parallelism": {"CopyToRanks", "SumOverRanks", "column_parallel", "RowParallel", "cut_layer"},
    "pipelines": {"one_f_one_b", "run_stage"},
    "context-parallelism": {"ring_attention", "ulysses_attention"},
    "experts": {"AllToAll", "ExpertParallel"},
}


def definitions(source):
    """Return name -> syntax tree, as text, of the functions and classes at the top level of Python code."""
    if source.startswith("%%writefile"):  # a program of its own
        return {}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: ast.dump(node) for node in ast.parse(source).body if isinstance(node, kinds)}


@functools.cache
def package():
    """Return name -> {module: syntax tree} for the public definitions; what checks have, no chapter builds."""
    found = {}
    for path in sorted(set((ROOT / "d2lmini").rglob("*.py")) - set((ROOT / "d2lmini" / "checks").rglob("*.py"))):
        for name, tree in definitions(path.read_text(encoding="utf-8")).items():
            if not name.startswith("_"):
                found.setdefault(name, {})[path.stem] = tree
    return found


def chapter(path):
    """Return name -> syntax tree of what a notebook defines, exercises apart: there the reader's answer stands."""
    found = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] == "code" and not any(tag.startswith("exercise-") for tag in tags):
            found.update(definitions("".join(cell["source"])))
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_definitions_in_a_chapter_are_the_packages(path):
    taught, ours = chapter(path), package()
    missing = TAUGHT.get(path.stem, set()) - set(taught)
    assert not missing, f"{path.name} no longer defines {sorted(missing)}"
    for name in sorted(set(taught) & set(ours)):
        homes = ours[name]
        assert taught[name] in homes.values(), f"{path.name}: {name} differs from d2lmini.{', '.join(homes)}.{name}"


def test_every_chapter_named_here_exists():
    assert set(TAUGHT) <= {path.stem for path in CHAPTERS}
