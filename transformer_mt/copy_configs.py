"""Copies the configurations that come with the package into a directory of the user."""

import os
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Copy the configurations into a directory. Files that exist there are kept."""
    parser = cli.parser(
        "configs",
        "Copies the configurations that come with the package into a directory, with schema.json, which lets\n"
        "editors check them, and constraints.txt, the versions of other packages that are tested: if a newer one\n"
        "gives trouble, install the wheel again by `pip install -c DIR/constraints.txt WHEEL`.\n"
        "A file that exists there already is kept as it is.",
        "python -m transformer_mt configs my_configs",
    )
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        nargs="?",
        default=Path("configs"),
        help="where to copy them (default: configs)",
    )
    directory = parser.parse_args(argv).directory
    shipped = sorted(shipped_configs().iterdir())
    kept = [file.name for file in shipped if not copy_config(file.name, directory)]
    print(f"{cli.shown(directory)}: {len(shipped) - len(kept)} of {len(shipped)} files copied")
    if kept:
        print(f"not copied, because they are there already: {', '.join(kept)}")
    return 0


def shipped_configs() -> Path:
    """Return the directory of these configurations: in the package if it was installed, beside it in a checkout."""
    package = Path(__file__).parent
    in_wheel = package / "shipped_configs"
    return in_wheel if in_wheel.is_dir() else package.parent / "configs"


def copy_config(name: str, directory: Path) -> bool:
    """Copy one configuration into a directory, unless it exists there already. Returns whether it was copied.

    Raises UserError if it cannot be written.
    """
    path = directory / name
    if os.path.lexists(path):  # a link that leads nowhere counts, too
        return False
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{directory}: cannot be made ({error.strerror}); name another directory") from None
    write_whole(path, (shipped_configs() / name).read_bytes())
    return True
