"""The three terms of the loss, by the paper's equation numbers, over exchangeable groups."""

import math

import torch
from torch import Tensor

from clbruno.core.coupling import Context
from clbruno.core.flow import Flow
from clbruno.learn.laws import Laws
from clbruno.learn.replay import Replay


def likelihood(z: Tensor, ladj: Tensor, group: Tensor, laws: Laws) -> Tensor:
    """L, eq. 3, and its form given old samples, eq. 8, of rows that the flow maps to z:

    - sum_groups log p(z_1, .., z_n | law of the group) - sum_i log|det df/dx_i|
    """
    return laws.nll(z, group) - ladj.sum()


def retention(z: Tensor, ladj: Tensor, group: Tensor, laws: Laws) -> Tensor:
    """L', eq. 6: pseudo-data, each on its own, under the old predictive laws.

    - sum_j log p_old(f(x'_j)) - sum_j log|det df/dx'_j|
    """
    return -laws.log_prob(z, group) - ladj.sum()


def functional(flow: Flow, replay: Replay, context: Context | None) -> Tensor:
    """R, eq. 4: sum_j || f^-1(z'_j) - x'_j ||^2."""
    return (flow.inverse(replay.z, context) - replay.x).square().sum()


def temperature_of(log_joint: Tensor, truth: Tensor) -> tuple[float, float]:
    """The temperature that gives the best log-loss of the true columns, and that log-loss.

        min_T  - mean_i log softmax(log_joint_i / T)[truth_i]

    by golden-section search over log T; the loss is convex in 1 / T, so it has one minimum.
    """

    def loss(log_t: float) -> float:
        chosen = torch.log_softmax(log_joint / math.exp(log_t), dim=-1)
        return -float(chosen.gather(1, truth[:, None]).mean())

    low, high = math.log(0.25), math.log(4096.0)
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-3:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = loss(right)
    best = (low + high) / 2
    return math.exp(best), loss(best)
