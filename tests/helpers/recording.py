"""What a CUDA graph does, on a CPU: the same kernels once more, on the same memory and with the same numbers."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = ("item", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2")


def tensors(*values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def address(tensor):
    return tensor.untyped_storage().data_ptr()


class _Recorder(TorchDispatchMode):
    """Of each kernel its arguments and the memory of its results; views run no kernel."""

    def __init__(self):
        super().__init__()
        self.kernels = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in READS, f"{name}: a graph cannot wait for a number"
        results = function(*args, **(kwargs or {}))
        writes = function._schema.is_mutable
        there = {address(tensor) for tensor in tensors(args, kwargs)}
        if writes or any(address(tensor) not in there for tensor in tensors(results)):
            self.kernels.append((function, args, kwargs or {}, [] if writes else tensors(results)))
        return results


class Recording:
    """Captures steps; `captured` counts them, `replayed` how often they ran again."""

    def __init__(self):
        self.captured = self.replayed = 0

    def __call__(self, step):
        with _Recorder() as recorder:
            result = step()
        self.captured += 1

        def again():
            self.replayed += 1
            for function, args, kwargs, memory in recorder.kernels:
                results = tensors(function(*args, **kwargs))
                for place, result_now in zip(memory, results if memory else [], strict=True):
                    place.copy_(result_now)
            return result

        return result, again
