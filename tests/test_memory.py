"""How much memory a process has taken."""

import subprocess
import sys

import pytest
from helpers.tiny import ROOT

MEGABYTE = 2**20
SCRIPT = f"""
from transformer_mt.base.system import peak_memory
before = peak_memory()
held = bytearray({100 * MEGABYTE})
del held
print(before, peak_memory())
"""


def test_what_was_once_held_counts_and_what_another_process_held_does_not():
    held_by_the_parent = bytearray(300 * MEGABYTE)
    ended = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, cwd=ROOT)
    before, after = map(int, ended.stdout.split())
    assert before + 90 * MEGABYTE < after < len(held_by_the_parent)


PRODUCTS = """
import transformer_mt, resource, torch
def product(rows):
    torch.nn.functional.linear(torch.zeros(rows, 128, dtype=torch.bfloat16), weight)
weight = torch.zeros(384, 128, dtype=torch.bfloat16)
product(601)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for rows in range(1, 600):
    product(rows)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_products_of_many_shapes_do_not_fill_the_memory():
    ended = subprocess.run([sys.executable, "-c", PRODUCTS], check=True, capture_output=True, text=True, cwd=ROOT)
    assert int(ended.stdout) < 60
