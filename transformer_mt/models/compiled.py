"""A frozen Transformer whose steps of one sentence are compiled by torch.compile.

A step of a few rows is a hundred operations of some microseconds each, half of which goes into calling them.
Compiled, a step is one call of C++ that PyTorch has written for this model and this processor.

B sentences  W hypotheses of a sentence  N slots of the cache  D model width  K width of a head
X sentences times heads  V vocabulary
"""

import logging
import warnings

import torch
from torch import Tensor
from torch._dynamo import config as dynamo_config
from torch._dynamo import mark_dynamic
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor import config as inductor_config
from torch._inductor.exc import InductorError, InvalidCxxCompiler

from transformer_mt.errors import TranslationError
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.models.frozen import FrozenTransformer, has_frozen_form
from transformer_mt.models.frozen_state import FrozenState
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.products import Products, best_products
from transformer_mt.models.transformer import Transformer
from transformer_mt.vocabulary import EOS

# To compile by. The compiler takes sizes that are equal then for equal ever after: slots, which are 16 or 32, differ.
SOURCE_POSITIONS, SEVERAL = 40, 3
MOST_SLOTS = 4096  # the compiler sums up more numbers in another way
UNFORESEEN = "eager_on_recompile"  # steps are not compiled again in the middle of a translation

_log = logging.getLogger(__name__)


def compiled(model: Seq2Seq) -> Seq2Seq:
    """The model for search in fp32 on a CPU, as `frozen` makes it, compiled for one thread.

    That takes a minute; half of one where PyTorch's cache has what is needed. It is for torch.inference_mode, and
    for as many threads as there are now. Raises TranslationError if the model has no such form, or if nothing can be
    compiled here.
    """
    members = model.members() if isinstance(model, Ensemble) else [model]
    transformers = [member for member in members if isinstance(member, Transformer)]
    if len(transformers) < len(members) or not all(map(has_frozen_form, transformers)):
        raise TranslationError(
            "--compile is for Transformers with model.attention_score=scaled_dot and without "
            "model.attention_window: leave it out"
        )
    made: list[Seq2Seq] = [CompiledTransformer(transformer) for transformer in transformers]
    return (Ensemble(made) if isinstance(model, Ensemble) else made[0]).eval()


class CompiledTransformer(FrozenTransformer):
    """Steps of several sentences, and of a long one, are those of the frozen model: their products count more."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model, Products())
        self.traced = FrozenTransformer(model, Products(prepared=False))
        self._compiled = torch.compile(self.traced.traceable_logits, fullgraph=True)
        _log.warning("compiling the steps of a search, which takes a minute, or half of one where it was done before")
        try:
            for width in (1, SEVERAL):
                self._compile(width)
        except (BackendCompilerFailed, InductorError, InvalidCxxCompiler) as error:
            raise TranslationError(
                f"the model cannot be compiled here: {str(error).strip().splitlines()[0]}. It takes a C++ compiler, "
                "g++ or what the environment's CXX names, the headers of Python, and a directory to write and run "
                "programs in (TORCHINDUCTOR_CACHE_DIR); or leave --compile out"
            ) from None

    def logits(self, token_BW: Tensor, position_D: Tensor, slots: slice | Tensor, state: FrozenState) -> Tensor:
        if not state.folded or state.past_B1WN.shape[3] > MOST_SLOTS:
            return super().logits(token_BW, position_D, slots, state)
        token_1W = token_BW.clone(memory_format=torch.contiguous_format)  # strides even of a single number count
        slots_W = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        with best_products(few=True), torch.compiler.set_stance(UNFORESEEN):
            logits_1WV: Tensor = self._compiled(token_1W, position_D, slots_W, state)
        return logits_1WV

    @torch.inference_mode()
    def _compile(self, width: int) -> None:
        """The steps with one hypothesis, or with any number beyond; of sources and pasts of all lengths."""
        state = self.start(torch.full((1, SOURCE_POSITIONS), EOS), width).with_slots()
        token_1W, slots_W = torch.full((1, width), EOS), torch.arange(width)
        varying = [(state.past_B1WN, 3), *((tensor, 0) for memory in state.folded for tensor in memory)]
        varying += [(key_XKN, 2) for key_XKN in state.keys_XKN] + [(value_XNK, 1) for value_XNK in state.values_XNK]
        if width > 1:
            varying += [(token_1W, 1), (slots_W, 0), (state.past_B1WN, 2)]
        for tensor, dim in varying:
            mark_dynamic(tensor, dim)
        options = {
            "cpp_wrapper": True,  # calls of kernels are compiled too
            "freezing": True,  # weights are constants, and put in order
            "max_autotune": True,  # of PyTorch's own product and what is compiled, the quicker
            "max_autotune_gemm_backends": "CPP,ATEN",
            "max_autotune_report_choices_stats": False,
            "autotune_num_choices_displayed": 0,
        }
        limits = {"recompile_limit": 1000, "accumulated_recompile_limit": 1000}  # models share a function
        with warnings.catch_warnings(), dynamo_config.patch(limits), inductor_config.patch(options):
            warnings.simplefilter("ignore")  # the compiler's, of itself
            with best_products(few=True):
                self._compiled(token_1W, self.model.positions.first(1)[0], slots_W, state)
