"""Local attention: each word sees only a window of the source (Luong et al. 2015, sec. 3.2).

B sentences  W hypotheses of a sentence  S source positions  T target positions  Q W times T  D width
"""

import torch
from torch import Tensor, nn


class SourceWindow(nn.Module):
    """The positions p - D to p + D of the source around a centre p. Positions count from 1, as in the paper.

    Monotonic (local-m): p_t = t, or the last word where the source is shorter. Predictive (local-p):
    p_t = S sigmoid(v^T tanh(W h_t)), where S is the length of the source (eq. 9).
    """

    def __init__(self, width: int, half_width: int, *, predicts: bool) -> None:
        super().__init__()
        self.half_width, self.predicts = half_width, predicts
        if predicts:
            self.inner, self.to_centre = (nn.Linear(width, to, bias=False) for to in (width, 1))
            for linear in (self.inner, self.to_centre):
                nn.init.xavier_uniform_(linear.weight)

    def centre(self, query_BWTD: Tensor, position: int, mask_B11S: Tensor) -> Tensor:
        """p of each query, BWT; the first query is of the word at `position`, counted from 0."""
        B, W, T, _ = query_BWTD.shape
        length_B11 = mask_B11S.sum(dim=-1)
        if self.predicts:
            share_BWT: Tensor = self.to_centre(self.inner(query_BWTD).tanh())[..., 0].sigmoid()
            return length_B11 * share_BWT
        word_T = torch.arange(position + 1, position + T + 1, device=query_BWTD.device)
        return word_T.minimum(length_B11).expand(B, W, T)

    def sees(self, centre_B1Q: Tensor, length: int) -> Tensor:
        """Which of that many source positions each query sees; B1QS."""
        return self._distance(centre_B1Q, length).abs() <= self.half_width

    def nearness(self, centre_B1Q: Tensor, length: int) -> Tensor:
        """exp(-(s - p)^2 / (2 sigma^2)) with sigma = D / 2, by which the weights of local-p are multiplied (eq. 10)."""
        sigma = self.half_width / 2
        return (-self._distance(centre_B1Q, length).square() / (2 * sigma**2)).exp()

    @staticmethod
    def _distance(centre_B1Q: Tensor, length: int) -> Tensor:
        return torch.arange(1, length + 1, device=centre_B1Q.device) - centre_B1Q[..., None]
