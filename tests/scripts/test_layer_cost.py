"""scripts/benchmarks/layer_cost.py: what is counted is what the formulas say."""

import json

import pytest
from benchmarks.layer_cost import PAPER, Cost, main, table

pytest.importorskip("matplotlib")

D, R, K = 16, 4, 3


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The report of two lengths, and the folder of it."""
    folder = tmp_path_factory.mktemp("cost")
    sizes = ["--width", D, "--window", R, "--kernel", K, "--lengths", 32, 256, "--repeats", 1, "--out", folder]
    assert main([str(argument) for argument in sizes]) == 0
    return json.loads((folder / "layer_cost.json").read_text()), folder


@pytest.mark.thorough
@pytest.mark.parametrize("n", [32, 256])
def test_operations_are_those_of_the_formulas(found, n):
    """A product of n by d and d by m has 2 n d m of them."""
    maps = 2 * n * D * 4 * D
    expected = {
        "self-attention": maps + 2 * 2 * n * n * D,
        "recurrent": 2 * 2 * n * D * 3 * D,
        "convolutional": 2 * (n - K + 1) * K * D * 2 * D,
        "restricted self-attention": maps + 2 * 2 * n * (32 + 2 * R) * D,
    }
    counted = {cost["layer"]: cost["operations"] for cost in found[0]["costs"] if cost["length"] == n}
    assert counted == expected
    assert all(cost["milliseconds"] > 0 for cost in found[0]["costs"])


@pytest.mark.thorough
def test_the_picture_is_one(found):
    assert (found[1] / "layer_cost.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_has_a_row_for_each_layer():
    costs = [Cost(name, n, n * 1_000_000, n / 10) for name in PAPER for n in (8, 2048)]
    lines = table(costs).splitlines()
    assert lines[0] == "| layer | operations | steps | path | n = 8 | n = 2,048 |"
    assert lines[2] == "| self-attention | n² d | 1 | 1 | 8 M, 0.8 ms | 2,048 M, 204.8 ms |"
    assert len(lines) == 2 + len(PAPER)
