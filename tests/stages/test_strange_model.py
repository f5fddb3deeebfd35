"""A model directory from a stranger, whose checksums fit: it costs neither time nor memory, and the error is a line."""

import re
import shutil

import pytest
from helpers.messages import says
from helpers.processes import ended, start
from helpers.thorough import thorough_rows
from helpers.tiny import renew_sums

# Its arguments are those of `translate`. The limit is on memory that the process asks for, which is more than it uses.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30,) * 2)
from transformer_mt import translate
from transformer_mt.base.system import peak_memory
from transformer_mt.terminal import cli
status = cli.run(translate.main, sys.argv[1:])
print(peak_memory())
sys.exit(status)
"""
MOST_MEMORY = 500e6
TIMES_NINE = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(12))
MERGED = "b0: &b0 {x: 1}\n" + "".join(f"b{i + 1}: &b{i + 1} {{<<: [{', '.join([f'*b{i}'] * 9)}]}}\n" for i in range(12))


def setting(key, value):
    return lambda text: re.sub(rf"^  {key}: .*", f"  {key}: {value}", text, count=1, flags=re.MULTILINE)


@pytest.fixture
def translate_limited(model_dir, tmp_path):
    """A function that translates a line by a copy of the model with a changed file: status, standard error, memory."""

    def run(name, change):
        model = shutil.copytree(model_dir, tmp_path / "model")
        (model / name).write_text(change((model / name).read_text(encoding="utf-8")), encoding="utf-8")
        renew_sums(model)
        (tmp_path / "line").write_text("The child is sleeping.\n")
        arguments = [model, "--device", "cpu", "--workers", 1, "--quiet", "--input", tmp_path / "line"]
        process = start(tmp_path, "translate", "-c", LIMITED, *arguments)
        status = ended(process)[0]
        return status, process.err.read_text(), int(process.out.read_text().split()[-1])

    return run


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("too-many-values", lambda text: TIMES_NINE + text),
        ("key-must-be-word", lambda text: TIMES_NINE + "? *a12\n: 1\n" + text),
        *thorough_rows(
            ("too-many-values", lambda text: MERGED + text),
            ("too-many-values", lambda text: text + f"x: [{'1, ' * 200_000}1]\n"),
            ("not-yaml", lambda text: "x: &x [*x, *x]\n" + text),
            ("not-yaml", lambda text: f"x: {'[' * 100_000}\n" + text),
            ("config-cannot-be-read", lambda text: text + f"x: {'x' * 100_000_000}\n"),
        ),
    ],
)
def test_yaml_has_a_bound_on_its_size(translate_limited, code, change):
    status, error, memory = translate_limited("config.yaml", change)
    assert status == 2 and says(error, code, "config.yaml")
    assert error.count("\n") == 1 and memory < MOST_MEMORY


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("key", "value"), [("d_model", 65_536), ("ffn_dim", 1_000_000), ("encoder_layers", 1000), ("d_model", 10**9)]
)
def test_sizes_that_the_weights_do_not_have_cost_no_memory(translate_limited, key, value):
    def change(text):
        return setting("max_positions", 1_000_000)(setting(key, value)(text))

    status, error, memory = translate_limited("config.yaml", change)
    assert status == 2 and ("model.safetensors" in error or key in error)
    assert error.count("\n") == 1 and memory < MOST_MEMORY


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["[" * 1_000_000, f"[{'{},' * 20_000_000}1]", '{"pairs": ' + "9" * 5000 + "}"])
def test_statistics_of_any_size_are_an_error(translate_limited, text):
    status, error, memory = translate_limited("training_lines.json", lambda _: text)
    assert status == 2 and "training_lines.json" in error
    assert error.count("\n") == 1 and memory < MOST_MEMORY
