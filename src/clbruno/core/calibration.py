"""What held-back real rows teach a model about its own answers: a link, and sorted scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

KEPT = 99
"""Scores kept of a cell: with the row that is asked about they make a hundred ranks."""

ENOUGH = 19
"""Scores of its own from which a class is judged by itself: 1 / (19 + 1) is the usual level."""

TEMPERATURES = torch.tensor([2 ** (step / 6) for step in range(-12, 43)], dtype=torch.float64)
"""What the temperature is chosen from, a quarter to 128."""

TAILS = torch.tensor([math.inf, 24.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.0], dtype=torch.float64)
"""What the tail of the link is chosen from."""

LOGITS = 12
"""Confidences are counted in steps of one logit from minus to plus this; beyond it at the ends."""

LABEL, LABEL_IN_TASK, DENSITY = range(3)
"""Kinds of scores: of p(y | x), of p(y | t, x), and of log p(x | t)."""


@dataclass(frozen=True)
class Link:
    """How a log-likelihood counts in Bayes' rule, relative to that of the row's best cell.

        gap = max_k log p(x | k) - log p(x | k)
        g = - a log(1 + gap / (a T)),   and  - gap / T  for a = inf

    The temperature T is over 1 where features say the same thing twice, which must not count
    twice, and under 1 where a few rows far away make every law too wide. The tail a: far behind
    the best cell a nat means less than close to it.

    The probability c of the most probable label is bent afterwards, the others keep their ratios:

        logit c' = slope logit c + offset,  at least what keeps that label the most probable

    Attributes:
        temperature: T.
        tail: a.
        slope: over 0; 1 with an offset of 0 bends nothing.
        offset: in logits.
    """

    temperature: float = 1.0
    tail: float = math.inf
    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, log_likelihood: Tensor) -> Tensor:
        """g of every cell, zero for the best one, shape `(n, cells)`."""
        gap = log_likelihood.amax(1, keepdim=True) - log_likelihood
        if self.tail == math.inf:
            return -gap / self.temperature
        return -self.tail * torch.log1p(gap / (self.tail * self.temperature))

    def bent(self, log_proba: Tensor) -> Tensor:
        """log p(y | x) with the confidence bent, one column per label."""
        if (self.slope, self.offset) == (1.0, 0.0) or log_proba.shape[1] == 1:
            return log_proba
        top, rest = confidence(log_proba)
        second = log_proba.scatter(1, top, -torch.inf).amax(1, keepdim=True)
        best = log_proba.gather(1, top)
        logit = torch.maximum(self.slope * (best - rest) + self.offset, second - rest)
        others = log_proba - rest + torch.nn.functional.logsigmoid(-logit)
        return others.scatter(1, top, torch.nn.functional.logsigmoid(logit))


def confidence(log_proba: Tensor) -> tuple[Tensor, Tensor]:
    """The column of the most probable label, and the log of what all others have; `(n, 1)`."""
    top = log_proba.argmax(1, keepdim=True)
    return top, log_proba.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True)


PLAIN = Link()
"""Bayes' rule itself."""


@dataclass(frozen=True)
class Calibration:
    """The frozen result of all held-back rows so far; none of them, and no pair of their scores.

    Attributes:
        link: chosen for the lowest log-loss of p(y | x) over the held-back rows of all updates.
        curve: that log-loss, summed, for every temperature and tail.
        reliability: held-back rows by the logit of their confidence: how many, how many of them
            right, and the sum of their logits, shape `(2 LOGITS, 3)`.
        held: scores kept of each cell.
        scores: of each cell and kind, `held` of them, ascending, then zeros; shape
            `(cells, 3, KEPT)`.
    """

    link: Link
    curve: Tensor
    reliability: Tensor
    held: tuple[int, ...]
    scores: Tensor

    @classmethod
    def empty(cls) -> "Calibration":
        """Nothing held back yet."""
        curve = torch.zeros((len(TEMPERATURES), len(TAILS)), dtype=torch.float64)
        scores = torch.zeros((0, 3, KEPT), dtype=torch.float64)
        reliability = torch.zeros((2 * LOGITS, 3), dtype=torch.float64)
        return cls(PLAIN, curve, reliability, (), scores)

    def grown(self, cells: int) -> "Calibration":
        """The same with room for more cells."""
        more = cells - len(self.held)
        room = torch.zeros((more, 3, KEPT), dtype=torch.float64)
        held = (*self.held, *[0] * more)
        return replace(self, held=held, scores=torch.cat((self.scores, room)))

    def with_scores(self, cell: int, new: Tensor) -> "Calibration":
        """The same with more scores of a cell, shape `(3, n)`; those of old rows count alike."""
        scores = self.scores.clone()
        joined = torch.cat((scores[cell, :, : self.held[cell]], new), dim=1)
        kept = spread(joined.sort(dim=1).values)
        scores[cell] = 0.0
        scores[cell, :, : kept.shape[1]] = kept
        held = (*self.held[:cell], kept.shape[1], *self.held[cell + 1 :])
        return replace(self, held=held, scores=scores)

    def restricted(self, cells: Sequence[int]) -> "Calibration":
        """The same for some cells alone; the sums over all cells stay."""
        held = tuple(self.held[cell] for cell in cells)
        return replace(self, held=held, scores=self.scores[list(cells)])

    def joined(
        self, other: "Calibration", cells: Mapping[int, int], base: "Calibration | None"
    ) -> "Calibration":
        """The same with the scores of another, for cells of it that are cells here.

        What both know from a base counts once in the sums.
        """
        total = self
        for theirs, mine in cells.items():
            new = other.scores[theirs, :, : other.held[theirs]]
            total = total.with_scores(mine, new)
        before = Calibration.empty() if base is None else base
        return replace(
            total,
            curve=self.curve + other.curve - before.curve,
            reliability=self.reliability + other.reliability - before.reliability,
        )

    def of(self, cells: Sequence[int], kind: int) -> Tensor:
        """The scores of some cells together, ascending."""
        parts = [self.scores[cell, kind, : self.held[cell]] for cell in cells]
        nothing = torch.zeros(0, dtype=torch.float64)
        return torch.cat([nothing, *parts]).sort().values


def spread(ordered: Tensor) -> Tensor:
    """At most `KEPT` of n ascending scores, those of rank j (n + 1) / (KEPT + 1), rounded up.

    A new score is as likely to fall between two of them as between any other two.
    """
    n = ordered.shape[-1]
    if n <= KEPT:
        return ordered
    ranks = torch.arange(1, KEPT + 1, dtype=torch.float64) * (n + 1) / (KEPT + 1)
    return ordered[..., (ranks - 1e-9).ceil().long() - 1]


def mass_above(proba: Tensor) -> Tensor:
    """How much of the probability is on labels that are more probable than each, as `proba`."""
    order = proba.sort(dim=1, descending=True)
    before = order.values.cumsum(1) - order.values
    # Equally probable labels stand together, with what is above the first of them.
    first = torch.searchsorted(-order.values, -order.values, right=False)
    before = before.gather(1, first)
    return torch.empty_like(proba).scatter_(1, order.indices, before).clamp(0, 1)


def share_beyond(ordered: Tensor, score: Tensor) -> Tensor:
    """The conformal p-value  (1 + #{ j : s_j >= s }) / (1 + m)  for ascending scores s_j."""
    below = torch.searchsorted(ordered, score.contiguous(), right=False)
    return (1 + len(ordered) - below).double() / (1 + len(ordered))
