"""The lines with which we measure whether numbers come back."""

from benchmarks.number_lines import KINDS, main, number_lines

from transformer_mt.base.doubts import numbers


def test_every_line_has_numbers_and_the_lines_are_the_same_at_each_call():
    for kind in KINDS:
        lines = number_lines(kind)
        assert lines == number_lines(kind) and all(map(numbers, lines))
        assert len(set(lines)) > len(lines) / 2
    assert sum(len(number_lines(kind)) for kind in KINDS) == 1000


def test_the_share_of_each_kind_is_that_of_lines_with_the_same_numbers(model_dir, capsys, monkeypatch):
    found = {line: line if line.endswith("0.") else "12" for kind in KINDS for line in number_lines(kind)}
    monkeypatch.setattr(
        "transformer_mt.Translator.translate", lambda self, lines, decoding: [found[line] for line in lines]
    )
    main(str(model_dir))
    for kind, said in zip(KINDS, capsys.readouterr().out.splitlines(), strict=True):
        lines = number_lines(kind)
        assert f"{kind:13} {sum(line.endswith('0.') for line in lines) / len(lines):7.1%}  " in said
        assert said.endswith(" -> 12")
