"""The three terms of the loss, by the paper's equation numbers, over exchangeable groups."""

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
