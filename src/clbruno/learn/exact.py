"""Statistics without rounding, so that neither the number of ranks nor their shares change a bit.

Each number is cut into pieces that are whole multiples of a power of two and so short that sums of
them (and of products of two of them) fit into the 53 bits of a float64: however the additions are
ordered, over rows, threads or ranks, the result is the same. What is rounded is rounded once.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from clbruno.core.moments import Moments
from clbruno.learn.distributed import Group

Chunks = Callable[[], Iterable[Tensor]]
"""The rows of this rank, in chunks; every call gives them anew."""

DIGITS = 48
"""Bits of every number that are taken into account, counted from the largest of its column."""


def exact_moments(chunks: Chunks, count: int, dim: int, group: Group) -> Moments:
    """Mean and scatter matrix of the `count` rows of all ranks, in four passes over this rank's.

    mean = (1/n) sum_i z_i,  scatter = sum_i (z_i - mean)(z_i - mean)', each exact but for the
    cut of every z_i and z_i - mean at 2^-48 of the largest of its column, and one rounding.
    """
    bits = 52 - _bits(count)
    scale = _scale(chunks, dim, group)
    total = torch.zeros((-(-DIGITS // bits), dim), dtype=torch.float64)
    for z in chunks():
        total += torch.stack([piece.sum(0) for piece in _pieces(z / scale, bits, len(total))])
    mean = scale * _put_together(group.sum(total), bits) / count

    def around() -> Iterable[Tensor]:
        return (z - mean for z in chunks())

    bits = bits // 2
    scale = _scale(around, dim, group)
    number = -(-DIGITS // bits)
    pairs = [(i, j) for i in range(number) for j in range(i, number - i)]
    products = torch.zeros((len(pairs), dim, dim), dtype=torch.float64)
    for z in around():
        pieces = _pieces(z / scale, bits, number)
        for at, (i, j) in enumerate(pairs):
            products[at] += pieces[i].mT @ pieces[j]
    products = group.sum(products)
    levels = torch.zeros((number, dim, dim), dtype=torch.float64)
    for at, (i, j) in enumerate(pairs):
        both = products[at] if i == j else products[at] + products[at].mT
        levels[i + j] += both
    scatter = _put_together(levels, bits) * 2.0**-bits
    return Moments(float(count), mean, scatter * torch.outer(scale, scale))


def _scale(chunks: Chunks, dim: int, group: Group) -> Tensor:
    """The least power of two over the largest entry of each column; 1 where all are zero."""
    largest = torch.zeros(dim, dtype=torch.float64)
    for z in chunks():
        largest = torch.maximum(largest, z.abs().amax(0))
    exponent = torch.frexp(group.largest(largest)).exponent
    return torch.ldexp(torch.ones(dim, dtype=torch.float64), exponent)


def _pieces(x: Tensor, bits: int, number: int) -> list[Tensor]:
    """Whole numbers s_1, s_2, .. of at most `bits` bits:  x = sum_k s_k 2^(-k bits) + rest."""
    pieces = []
    for _ in range(number):
        x = x * 2.0**bits
        pieces.append(x.trunc())
        x = x - pieces[-1]
    return pieces


def _put_together(levels: Tensor, bits: int) -> Tensor:
    """sum_k levels_k 2^(-k bits), k from 1, the smallest first."""
    total = torch.zeros_like(levels[0])
    for level in levels.flip(0):
        total = (total + level) * 2.0**-bits
    return total


def _bits(count: int) -> int:
    return max(1, math.ceil(math.log2(count)))
