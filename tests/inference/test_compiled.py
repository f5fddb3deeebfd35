"""Compiled steps say what those of the frozen model say, and nothing is compiled but when it is asked for."""

import os
import platform
import shutil
from copy import deepcopy
from dataclasses import replace
from itertools import chain, product, repeat
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
from helpers.plain_search import CAPS
from helpers.stepping import WIDER_AND_NARROWER, logits_along
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from torch.torch_version import TorchVersion
from torch.utils._pytree import tree_unflatten

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.search import beam_search, greedy
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import CompilerFilesError, TranslationError
from transformer_mt.inference import compiled as module
from transformer_mt.inference.compiled import CompiledTransformer, compile_steps, compiled
from transformer_mt.inference.ensemble import Ensemble
from transformer_mt.inference.folded import MOST_POSITIONS
from transformer_mt.inference.frozen import FrozenTransformer, frozen
from transformer_mt.inference.traced import MOST_SLOTS, Kind, traced
from transformer_mt.kernels.matmul import X86, Matmul, mkl_is_quicker
from transformer_mt.settings.decoding import DecodingConfig

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")

HAS_INT8 = torch.__version__ >= "2.13" and platform.machine() in X86
FP32, INT8 = Matmul(), Matmul(quantization="int8")
SEVERAL = 3  # hypotheses
SEARCHES = (True, 1), (True, SEVERAL), (False, SEVERAL)  # that are compiled: of a sentence alone or not, so wide
KINDS = [{"norm": "post", "activation": "relu"}, {"norm": "pre", "activation": "swiglu", "output_bias": True}]
LENGTHS = (1, 7, 16, 33, MOST_POSITIONS, MOST_POSITIONS + 1)


@pytest.fixture(autouse=True)
def one_thread_and_no_gradients():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """A directory for what is compiled, of this module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(directory))
        patch.setitem(module.OPTIONS, "max_autotune", False)  # to choose takes half of the time
        yield directory / "transformer_mt"


@pytest.fixture(scope="module")
def model_of(cache):
    """A function that gives a model of a kind compiled, once."""
    made = {}

    def get(kind, build, matmul):
        if kind not in made:
            made[kind] = ready(build(), matmul)
        return made[kind]

    return get


def ready(model, matmul=FP32):
    ours = compiled(model, matmul)
    for alone, width in SEARCHES:
        assert compile_steps(ours, alone, width) == (alone or matmul == INT8 or not mkl_is_quicker())
        assert not compile_steps(ours, alone, width), "but once"
    return ours


@pytest.fixture(params=KINDS)
def two_forms(request, tiny_model, model_of):
    """A model frozen, and the same compiled."""

    def build():
        return tiny_model(decoder_layers=2, **request.param).float()

    return frozen(build(), FP32), model_of(request.param["norm"], build, FP32)


class AsHandedOver(FrozenTransformer):
    """What the compiler is given, uncompiled."""

    def __init__(self, model):
        super().__init__(model, INT8)
        self.steps = FrozenTransformer(model, replace(INT8, prepared=False))

    def logits(self, *arguments):
        return self.steps.logits(*arguments)


@pytest.fixture
def needs_int8():
    if not HAS_INT8:
        pytest.skip("here products in int8 cannot be compiled")


@pytest.fixture
def two_int8_forms(needs_int8, model_dir, model_of):
    """A model before and after it is compiled."""
    model = Translator.load(model_dir, "cpu", workers=1).engine.model
    return AsHandedOver(model), model_of("int8", lambda: model, INT8)


def assert_steps_alike(ours, model, source_BS, widths, leaving=()):
    found = logits_along(ours, source_BS, widths, leaving)
    for logits_BWV, expected_BWV in zip(found, logits_along(model, source_BS, widths, leaving), strict=True):
        torch.testing.assert_close(logits_BWV, expected_BWV, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [*thorough(KINDS[0]), KINDS[1]])
def test_the_program_that_is_compiled_says_what_the_frozen_model_says(settings, tiny_model, sources, monkeypatch):
    """The traced program, run by PyTorch itself: no compiler is needed, and none is waited for."""

    def traced_step(model, kind):
        program = traced(model, FP32, kind)
        run = program.module()

        def step(tensors):
            arguments, _ = tree_unflatten(tensors, program.call_spec.in_spec)
            return [run(*arguments)]

        return step

    monkeypatch.setattr(CompiledTransformer, "_compiled", traced_step)
    model = tiny_model(decoder_layers=2, **settings).float()
    ours = compiled(model, FP32)
    compile_steps(ours, True, SEVERAL)
    model = frozen(model, FP32)
    for length in (7, MOST_POSITIONS + 1):
        assert_steps_alike(ours, model, sources(1, length), [2, SEVERAL, 9, 2])


@pytest.mark.thorough
def test_steps_are_those_of_the_frozen_model(two_forms, sources):
    """Of sentences alone, of several, and of what remains of them; through all sizes of the past."""
    model, ours = two_forms
    for length in LENGTHS:
        assert_steps_alike(ours, model, sources(1, length), WIDER_AND_NARROWER * 3)
    assert_steps_alike(ours, model, sources(4, 7), WIDER_AND_NARROWER, leaving=(2, 4, 6, 8))
    for count, length in [(2, 7), (5, 16), (24, MOST_POSITIONS + 1)]:
        assert_steps_alike(ours, model, sources(count, length), [SEVERAL] * 40, leaving=(5, 9))


@pytest.mark.thorough
def test_so_are_they_with_more_slots_than_are_compiled_for(two_forms, sources):
    """Of which there are some for each position of each hypothesis; and with so few that all are one block."""
    model, ours = two_forms
    assert_steps_alike(ours, model, sources(1, 7), [600] * 9)
    assert_steps_alike(ours, model, sources(1, 7), [1] * 40)


@pytest.mark.thorough
def test_searches_find_the_same(two_forms, sources):
    model, ours = two_forms
    widths = DecodingConfig(beam_size=1), DecodingConfig(beam_size=SEVERAL, n_best=SEVERAL)
    for decoding, count in product(widths, (1, len(CAPS))):
        search, source_BS = greedy if decoding.beam_size == 1 else beam_search, sources(count, 9)
        found, expected = (search(one, source_BS, Constraints(CAPS[:count]), decoding) for one in (ours, model))
        for ours_now, theirs in zip(found, expected, strict=True):
            pairs = zip(*([one] if decoding.beam_size == 1 else one for one in (ours_now, theirs)), strict=True)
            for hypothesis, other in pairs:
                assert hypothesis.tokens == other.tokens
                assert hypothesis.log_prob == pytest.approx(other.log_prob, abs=1e-4)


@pytest.mark.thorough
def test_int8_steps_are_those_of_the_model_that_was_compiled(two_int8_forms, sources):
    """But for numbers at the edge of rounding."""
    model, ours = two_int8_forms
    for count, length in [(1, 1), (1, 33), (1, MOST_POSITIONS + 1), (2, 7), (5, 16), (24, 33)]:
        for widths in ([SEVERAL] * 20, *([[1] * 20, WIDER_AND_NARROWER] if count == 1 else [])):
            steps = zip(*(logits_along(one, sources(count, length), widths) for one in (ours, model)), strict=True)
            for found_BWV, expected_BWV in steps:
                assert (found_BWV - expected_BWV).norm() < 0.02 * expected_BWV.norm()


@pytest.mark.thorough
def test_which_steps_are_compiled(two_forms, two_int8_forms, sources, monkeypatch):
    fp32, int8 = two_forms[1], two_int8_forms[1]
    calls = []
    for ours in (fp32, int8):
        steps = {kind: lambda *_, kind=kind: calls.append(kind) or torch.zeros(1, 1, 11) for kind in ours.steps}
        monkeypatch.setattr(ours, "steps", steps)
    alone, some = Kind(True, 2), Kind(False, SEVERAL)
    cases = [(fp32, 1, MOST_POSITIONS + 1, 1, []), (fp32, 1, 7, MOST_SLOTS + 1, [])]
    cases += [(int8, 1, MOST_POSITIONS + 1, 2, [alone])]
    for ours in (fp32, int8):
        cases += [(ours, 1, 7, 1, [Kind(True, 1)]), (ours, 1, 7, 2, [alone]), (ours, 1, 7, 9, [alone])]
        of_some = [some] if some in ours.steps else []
        cases += [(ours, 2, 7, SEVERAL, of_some), (ours, 9, 7, SEVERAL, of_some), (ours, 2, 7, 1, [])]
        cases += [(ours, 2, 7, SEVERAL - 1, []), (ours, 2, 7, SEVERAL + 1, [])]
    for ours, count, length, width, expected in cases:
        calls.clear()
        ours.step(torch.ones(count, width, dtype=torch.long), ours.start(sources(count, length), width))
        assert calls == expected


@pytest.mark.thorough
def test_a_single_hypothesis_takes_the_steps_of_several_if_only_these_are_compiled(two_forms, sources, monkeypatch):
    """As at the beginning and the end of a beam search, and however often in between."""
    model, ours = two_forms
    calls = []
    several = Kind(True, 2)

    def counted(tensors, step=ours.steps[several]):
        calls.append(several)
        return step(tensors)

    monkeypatch.setattr(ours, "steps", {several: counted})
    for widths in ([1, 1, 1], [1, 3, 1, 1, 2, 1]):
        calls.clear()
        assert_steps_alike(ours, model, sources(1, 7), widths)
        assert len(calls) == len(widths)
    assert_steps_alike(ours, model, sources(2, 7), [1, 1])
    assert len(calls) == len(widths), "but not those of several sentences"


def test_products_that_no_compiler_makes_stay(tiny_model, monkeypatch):
    monkeypatch.setattr(module, "mkl_is_quicker", lambda: True)
    ours = compiled(tiny_model(d_model=16).float(), FP32)
    assert not compile_steps(ours, False, SEVERAL)
    assert not ours.steps


@pytest.mark.thorough
def test_other_numbers_of_threads_change_nothing(two_forms, sources):
    model, ours = two_forms
    torch.set_num_threads(2)
    assert_steps_alike(ours, model, sources(1, 7), WIDER_AND_NARROWER)


@pytest.mark.thorough
def test_it_is_compiled_once(two_forms, tiny_model, cache, monkeypatch):
    """For the same numbers, PyTorch, and processor."""
    model = two_forms[0].model
    before = sorted(cache.iterdir())

    def refuse(*_, **__):
        raise RuntimeError("to be compiled again")

    monkeypatch.setattr(module, "aoti_compile_and_package", refuse)
    ready(model)
    assert sorted(cache.iterdir()) == before
    other = deepcopy(model)
    other.decoder_layers()[1].feed_forward.outer.weight[0, 0] += 1e-3
    like = deepcopy(model)
    like.config = model.config.model_copy(update={"activation": "gelu"})
    with pytest.raises(TranslationError, match="to be compiled again"):
        ready(other)
    with pytest.raises(TranslationError, match="to be compiled again"):
        ready(like)
    if HAS_INT8:
        with pytest.raises(TranslationError, match="to be compiled again"):
            ready(model, INT8)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": "another processor's"})
    with pytest.raises(TranslationError, match="to be compiled again"):
        ready(model)
    assert sorted(cache.iterdir()) == before, "nothing is left behind"


def test_so_is_a_directory_that_cannot_be_written_to(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "transformer_mt" / "lock").mkdir(parents=True)
    with pytest.raises(TranslationError, match=r"cannot be kept in .*lock.*that has room"):
        ready(tiny_model(d_model=16).float())


@pytest.mark.thorough
def test_what_a_killed_compilation_left_is_removed(two_forms, cache):
    left = cache / "compiling-x"
    left.mkdir()
    (left / "half.pt2").write_text("no program", encoding="utf-8")
    before = sorted({*cache.iterdir()} - {left})
    ready(two_forms[0].model)
    assert sorted(cache.iterdir()) == before


def test_a_directory_that_others_may_write_to_is_refused(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "transformer_mt").mkdir()
    (tmp_path / "transformer_mt").chmod(0o777)
    with pytest.raises(CompilerFilesError, match=r"transformer_mt: other users may write to it"):
        ready(tiny_model(d_model=16).float())


@pytest.fixture
def kept(tiny_model, monkeypatch, tmp_path):
    """A package, and a function that loads it or compiles it anew. Nothing is traced, compiled or read for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    programs, loaded = chain([Random(1).randbytes(1000)], repeat(b"compiled")), []

    def load(path):
        loaded.append(Path(path))
        return SimpleNamespace(loader=SimpleNamespace(boxed_run=None))

    def compile_and_package(*_, package_path, **__):
        Path(package_path).write_bytes(next(programs))

    monkeypatch.setattr(module, "traced", lambda *_: None)
    monkeypatch.setattr(module, "aoti_load_package", load)
    monkeypatch.setattr(module, "aoti_compile_and_package", compile_and_package)
    ours = compiled(tiny_model(decoder_layers=2).float(), FP32)
    ours.compile_steps(True, 1)
    (path,) = loaded

    def load_again():
        loaded.clear()
        ours.steps.clear()
        ours.compile_steps(True, 1)
        return loaded[0].read_bytes()

    return path, load_again


def test_a_damaged_package_is_compiled_anew(kept, caplog):
    """Whichever bit it is, or where it ends; what is damaged is never loaded, which might end the process."""
    path, load_again = kept
    whole, random = path.read_bytes(), Random(18)
    damaged = [whole[: random.randrange(len(whole))] for _ in range(5)]
    for _ in range(20):
        flipped = bytearray(whole)
        flipped[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        caplog.clear()
        path.write_bytes(content)
        assert load_again() == b"compiled"
        assert f"{path} is damaged, and compiled anew" in caplog.messages
        assert not path.exists()
        for new in path.parent.glob(f"{path.name.split('-')[0]}*"):
            new.unlink()
    path.write_bytes(whole)
    assert load_again() == whole


def test_a_package_of_another_user_or_that_others_may_write_to_is_refused(kept):
    path, load_again = kept
    for mode in (0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(CompilerFilesError, match=r"\.pt2: other users may write to it.*remove it"):
            load_again()
    path.chmod(0o600)
    real = path.rename(path.parent / "elsewhere")
    path.symlink_to(real)
    with pytest.raises(CompilerFilesError, match=r"\.pt2: is a link.*remove it"):
        load_again()
    path.unlink()
    real.rename(path)
    load_again()
    if os.getuid() == 0:
        os.chown(path, 4242, 4242)
        with pytest.raises(CompilerFilesError, match=r"\.pt2: belongs to another user \(number 4242\)"):
            load_again()


def test_what_cannot_be_kept_or_read_is_said(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no directory", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CompilerFilesError, match=r"can be kept nowhere .*file.*let XDG_CACHE_HOME name"):
        ready(tiny_model(d_model=16).float())


@pytest.mark.thorough
def test_also_of_an_ensemble(tiny_model, sources):
    models = [tiny_model(decoder_layers=2, **kind).float() for kind in KINDS]
    ours = ready(Ensemble(models))
    assert all(isinstance(member, CompiledTransformer) for member in ours.members())
    assert_steps_alike(ours, frozen(Ensemble(models), FP32), sources(1, 7), [1, 3, 3, 2, 1])


@pytest.mark.thorough
def test_lines_are_translated_as_ever(model_dir, translator):
    """One alone, and many by workers, which were forked from a process that has compiled; whatever threads it has."""
    torch.set_num_threads(2)
    ours = Translator.load(model_dir, device="cpu", workers=2, compile=True)
    demo_lines = [source for source, _ in demo_pairs(40)]
    for beam_size in (1, 4):
        for lines in (demo_lines[:1], demo_lines):
            assert ours.translate(lines, beam_size=beam_size) == translator.translate(lines, beam_size=beam_size)
    searches = product({True, mkl_is_quicker()}, (1, 4))  # alone, and several unless by MKL
    assert ours.engine.searched.steps.keys() == {Kind.of(alone, width) for alone, width in searches}
    ours.engine.translators.close()


@pytest.mark.thorough
def test_workers_have_what_was_compiled_after_they_began(needs_int8, model_dir, monkeypatch):
    """And nothing is compiled but for searches that there were. Here the quickest products are chosen, as for users."""
    monkeypatch.setitem(module.OPTIONS, "max_autotune", True)
    ours = Translator.load(model_dir, device="cpu", workers=2, quantize="int8", compile=True)
    demo_lines = [source for source, _ in demo_pairs(40)]
    ours.translate(demo_lines, beam_size=1)
    before = ours.engine.translators._pool
    ours.translate(demo_lines, beam_size=SEVERAL)
    now = ours.engine.translators._pool
    assert before is not None
    assert now is not None
    assert now is not before
    assert ours.engine.searched.steps.keys() == {Kind(False, 1), Kind(False, SEVERAL)}
    plain = Translator.load(model_dir, device="cpu", workers=1)
    found, expected = (
        sum(best.log_prob for best, *_ in one.translations(demo_lines, beam_size=SEVERAL)) for one in (ours, plain)
    )
    assert found == pytest.approx(expected, rel=0.02)
    ours.engine.translators.close()


@pytest.mark.parametrize("settings", [{"dtype": "bf16"}, {"engine": "ctranslate2"}], ids=str)
def test_other_precisions_and_engines_are_refused(settings, model_dir):
    with pytest.raises(TranslationError, match="--compile is for the engine torch in fp32 or int8: leave --engine and"):
        Translator.load(model_dir, "cpu", compile=True, **settings)


def test_other_architectures_are_refused(tiny_model, tiny_rnn):
    for model in (tiny_rnn(), tiny_model(attention_score="additive"), tiny_model(attention_window=3)):
        with pytest.raises(TranslationError, match=r"--compile is for Transformers with model\.attention_score=scaled"):
            compiled(model, FP32)


@pytest.mark.parametrize(("machine", "version"), [("aarch64", "2.13.0"), ("x86_64", "2.12.1"), ("x86_64", "2.9.0")])
def test_int8_is_for_some_processors_and_newer_pytorch(machine, version, tiny_model, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    with pytest.raises(TranslationError, match=r"with int8 needs an x86 processor and PyTorch 2\.13"):
        compiled(tiny_model().float(), INT8)


@pytest.mark.thorough
def test_without_a_compiler_it_is_said_what_is_missing(tiny_model, tmp_path, monkeypatch):
    from torch._inductor import config as inductor_config  # here, for it takes seconds

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    patched = inductor_config.patch({"cpp.cxx": (None, "no-such-compiler")})
    with patched, pytest.raises(TranslationError, match=r"cannot be compiled here.*g\+\+.*leave --compile out"):
        ready(tiny_model(d_model=16).float())
