import pytest
import torch
from helpers.messages import message
from helpers.pretended_gpus import two_gpus
from torch.nn.attention import SDPBackend

from transformer_mt.base.errors import ConfigError, TranslationError
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.decoding.translator import Translator
from transformer_mt.kernels import device as device_module
from transformer_mt.kernels.device import check_c_compiler, choose_device, why_gpu_unused

MATMUL = torch.backends.mkldnn.matmul


@pytest.fixture(autouse=True)
def process_is_left_as_it_was():
    threads, precision = torch.get_num_threads(), MATMUL.fp32_precision
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
    MATMUL.fp32_precision = precision


@pytest.fixture
def processor(monkeypatch):
    """A function that lets the CPU have these capabilities and no others."""

    def has(*capabilities, cpu_name="AMD EPYC"):
        known = {"cpu_name": cpu_name, **dict.fromkeys(capabilities, True)}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)

    return has


@pytest.mark.parametrize("name", ["tpu9", "cuda:99", "meta", "cpu and more", ""])
def test_a_device_that_is_not_there_is_named_with_what_may_be_said(name):
    with pytest.raises(ConfigError, match=message("device-unusable", f" {name} ")):
        choose_device(name, "auto")


def test_auto_is_cuda_where_there_is_one_and_else_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", "auto").torch_device == torch.device("cpu")
    if not torch.backends.cuda.is_built():
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        with pytest.raises(ConfigError, match=message("device-unusable", "cuda")):
            choose_device("auto", "auto")


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("capabilities", [(), ("avx512_bf16", "amx_bf16")])
def test_a_precision_that_is_named_is_taken(processor, precision, dtype, capabilities):
    processor(*capabilities)
    chosen = choose_device("cpu", precision)
    assert chosen.dtype == dtype
    assert chosen.description.endswith(f", {precision}")


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ((), torch.float32),
        (("avx2", "avx512_f"), torch.float32),
        (("avx512_bf16",), torch.bfloat16),
        (("amx_bf16",), torch.bfloat16),
    ],
)
def test_auto_precision_is_bf16_where_the_processor_multiplies_it(processor, capabilities, dtype):
    processor(*capabilities)
    assert choose_device("cpu", "auto").dtype == dtype


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [(("avx512_bf16",), torch.float32), (("avx512_bf16", "amx_bf16"), torch.bfloat16)],
)
def test_auto_precision_is_bf16_on_intel_only_with_amx(processor, capabilities, dtype):
    processor(*capabilities, cpu_name="Intel Xeon")
    assert choose_device("cpu", "auto").dtype == dtype


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((6, 1), torch.float32), ((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16)],
)
def test_auto_precision_of_a_gpu_is_what_its_tensor_cores_multiply(capability, dtype):
    with two_gpus(capability):
        assert choose_device("cuda", "auto").dtype == dtype


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_products_have_the_precision_and_weights_are_fp32(precision, dtype):
    chosen, layer = choose_device("cpu", precision), torch.nn.Linear(4, 3)
    with chosen.autocast():
        assert layer(torch.ones(2, 4)).dtype == dtype
    assert layer(torch.ones(2, 4)).dtype == layer.weight.dtype == torch.float32


def test_threads_are_as_many_as_asked_for_and_0_leaves_them(monkeypatch):
    monkeypatch.setattr("transformer_mt.kernels.device.num_cores", lambda: 2)
    assert "CPU, 1 thread, " in choose_device("cpu", "auto", num_threads=1).description
    assert "CPU, 2 threads, " in choose_device("cpu", "auto", num_threads=2).description
    assert torch.get_num_threads() == 2
    choose_device("cpu", "auto", num_threads=0)
    assert torch.get_num_threads() == 2


def test_a_gpu_that_is_chosen_becomes_the_current_one():
    """Triton's kernels run on that one, wherever their tensors are."""
    with two_gpus():
        assert choose_device("cuda", "auto").torch_device == torch.device("cuda:0")
        first, second = choose_device("cuda:0", "auto"), choose_device("cuda:1", "auto")
        assert torch.cuda.current_device() == 1
        assert (first.torch_device.index, second.torch_device.index) == (0, 1)
        assert second.description == "pretended GPU 1, bf16"
        assert choose_device("cuda", "auto").torch_device == torch.device("cuda:1")


def test_a_gpu_for_which_pytorch_has_no_kernels_is_named_with_those_that_it_has(monkeypatch):
    def no_kernel(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nSearch for ...")

    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80"])
    with two_gpus(capability=(7, 0)):
        monkeypatch.setattr(torch, "ones", no_kernel)
        with pytest.raises(ConfigError, match=message("gpu-unknown-to-pytorch", "cuda:1", "70", "sm_75, sm_80")):
            choose_device("cuda:1", "auto")


@pytest.fixture
def has_gpu(monkeypatch, tmp_path):
    """Linux says that there is a GPU, which PyTorch cannot use."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(device_module, "GPU_FILES", (str(tmp_path / "nvidia0"),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def cannot_use(monkeypatch, said, version):
    def raises(*_, **__):
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "empty", raises)
    monkeypatch.setattr(torch.version, "cuda", version)


def test_why_a_gpu_is_not_used_is_what_pytorch_says_and_what_it_is_built_for(has_gpu, monkeypatch):
    cannot_use(monkeypatch, "The NVIDIA driver on your system is too old (found version 12040).\nmore", "13.0")
    assert why_gpu_unused() == (
        "The NVIDIA driver on your system is too old (found version 12040). "
        f"(PyTorch {torch.__version__} is built for CUDA 13.0)"
    )
    cannot_use(monkeypatch, "Torch not compiled with CUDA enabled", None)
    assert why_gpu_unused().endswith("is built for CPUs only)")


def test_nothing_is_said_of_a_gpu_that_is_used_hidden_or_not_there(has_gpu, monkeypatch):
    with two_gpus():
        assert why_gpu_unused() == ""
    cannot_use(monkeypatch, "no CUDA-capable device is detected", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_gpu_unused() == ""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(device_module, "GPU_FILES", ("/nowhere",))
    assert why_gpu_unused() == ""


def test_a_missing_c_compiler_or_header_is_named(monkeypatch, tmp_path):
    headers, programs = tmp_path / "include", tmp_path / "bin"
    monkeypatch.setattr("sysconfig.get_path", lambda name, scheme: str(headers))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ConfigError, match=message("compiler-missing")):
        check_c_compiler()
    programs.mkdir()
    (programs / "clang").touch(mode=0o755)
    with pytest.raises(ConfigError, match=message("compiler-missing", f"{headers}/Python.h")):
        check_c_compiler()
    headers.mkdir()
    (headers / "Python.h").touch()
    check_c_compiler()
    monkeypatch.setenv("CC", "other-cc")
    with pytest.raises(ConfigError, match=message("compiler-missing")):
        check_c_compiler()


@pytest.mark.parametrize(
    ("capability", "dtype"), [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp16"), ((7, 0), "fp16"), ((6, 1), "fp32")]
)
def test_for_a_search_auto_is_the_fastest_precision_of_a_gpu(capability, dtype):
    with two_gpus(capability):
        assert EngineOptions("cuda:1", dtype="auto").resolved() == EngineOptions("cuda:1", dtype=dtype)
        assert EngineOptions("cuda:1").resolved().dtype == "fp32", "auto is not the default"


@pytest.mark.parametrize("capabilities", [(), ("avx512_bf16", "amx_bf16")])
def test_for_a_search_auto_is_fp32_on_every_cpu(processor, model_dir, capabilities):
    """While training takes bf16 where it is faster."""
    processor(*capabilities)
    assert EngineOptions("cpu", dtype="auto").resolved() == EngineOptions("cpu", dtype="fp32")
    with Translator.load(model_dir, "cpu", dtype="auto", workers=1) as translator:
        assert translator.engine.device.dtype == torch.float32


def test_for_a_search_by_ctranslate2_there_is_no_auto():
    with pytest.raises(TranslationError, match=message("dtype-auto-needs-torch", "bf16 or fp16")):
        EngineOptions("cpu", "ctranslate2", "auto").resolved()


@pytest.mark.cuda
def test_on_a_gpu_no_attention_is_that_of_cudnn():
    """It would make a plan for each shape."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    device = choose_device("cuda", "auto").torch_device
    for queries, mask in [(30, (4, 1, 1, 30)), (30, (30, 30)), (1, (4, 1, 1, 30)), (30, None)]:
        query_BHTK = torch.zeros(4, 8, queries, 64, dtype=torch.bfloat16, device=device)
        key_BHSK = torch.zeros(4, 8, 30, 64, dtype=torch.bfloat16, device=device)
        sees = None if mask is None else torch.ones(mask, dtype=torch.bool, device=device)
        for training in (False, True):
            query_BHTK.requires_grad_(training)
            assert torch._fused_sdp_choice(query_BHTK, key_BHSK, key_BHSK, sees) != SDPBackend.CUDNN_ATTENTION.value
