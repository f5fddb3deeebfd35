"""Measure everything on a machine with a GPU with one command, and write a folder of JSON.

python scripts/benchmarks/gpu.py PART … --out FOLDER

`benchmarks.gpu_parts.command` describes the parts.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python looks for modules beside this file; ours are in scripts/ and, if it is not installed, in the checkout.
    scripts = Path(__file__).resolve().parent.parent
    sys.path[:1] = [str(scripts), str(scripts.parent)]

    from benchmarks.gpu_parts.command import main
    from transformer_mt.terminal import cli

    sys.exit(cli.run(main))
