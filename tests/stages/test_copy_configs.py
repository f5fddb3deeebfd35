"""The configurations that are shipped: copied, never over what is there, and packed into a wheel."""

import tomllib
from pathlib import Path

from helpers.messages import says
from helpers.tiny import ROOT, status_and_error

from transformer_mt import demo
from transformer_mt.__main__ import copy_configs

SHIPPED = {path.name: path.read_bytes() for path in (ROOT / "configs").iterdir()}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_all_are_copied_and_a_second_time_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert copy_configs([]) == 0
    assert capsys.readouterr().out == f"configs: {len(SHIPPED)} of {len(SHIPPED)} files copied\n"
    assert contents(tmp_path / "configs") == SHIPPED
    assert copy_configs([]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"configs: 0 of {len(SHIPPED)} files copied"
    assert second == f"not copied, because they are there already: {', '.join(sorted(SHIPPED))}"


def test_a_file_that_is_there_stays_as_it_is(tmp_path):
    (tmp_path / "demo_en_de.yaml").write_text("mine\n")
    copy_configs([str(tmp_path)])
    assert contents(tmp_path) == SHIPPED | {"demo_en_de.yaml": b"mine\n"}


def test_a_link_that_leads_nowhere_stays_as_it_is(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo_en_de.yaml").symlink_to(tmp_path / "nowhere")
    copy_configs([str(tmp_path / "configs")])
    assert not (tmp_path / "nowhere").exists()


def test_a_place_where_nothing_can_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    status, error = status_and_error(copy_configs, tmp_path / "file" / "configs", capsys=capsys)
    assert status == 2
    assert says(error, "file-cannot-be-written", str(tmp_path / "file" / "configs"))


PACKING = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def test_a_wheel_holds_every_folder_of_the_package():
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "transformer_mt").rglob("*.py")}
    listed = set(PACKING["packages"]) - PACKING["package-dir"].keys()
    assert listed == {".".join(folder.parts) for folder in folders}


def test_a_wheel_holds_all_configurations_where_they_are_looked_for():
    [(package, directory)] = PACKING["package-dir"].items()
    assert package == "transformer_mt.shipped_configs"
    assert package in PACKING["packages"]
    packed = {path.name for pattern in PACKING["package-data"][package] for path in (ROOT / directory).glob(pattern)}
    assert packed == SHIPPED.keys()


def test_they_are_found_in_a_wheel_and_in_a_checkout(tmp_path, monkeypatch):
    assert demo.shipped_configs() == ROOT / "configs"
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "transformer_mt" / "demo.py"))
    (tmp_path / "transformer_mt" / "shipped_configs").mkdir(parents=True)
    assert demo.shipped_configs() == tmp_path / "transformer_mt" / "shipped_configs"
