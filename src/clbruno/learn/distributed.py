"""The processes that learn one batch together, each with rows of its own (torch.distributed).

All of them hold the same model and take the same decisions from the same seed, about rows that are
numbered through: those of rank 0 first. What couples the rows (statistics, scores, gradients) is
added up over the ranks; nothing else of a row leaves its rank but its class, the rows that a first
batch is scaled by, and the latents of small steps.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from clbruno.core.moments import Moments
from clbruno.errors import InputError, TrainingError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Group:
    """The ranks of a process group, or one process alone, for which every method is the identity.

    Every rank must call the same methods in the same order.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
        device: where torch's collectives want their tensors; None without a process group.
    """

    rank: int = 0
    size: int = 1
    device: torch.device | None = None

    @classmethod
    def current(cls) -> "Group":
        """The default process group, if one is initialised; else this process alone."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        nccl = dist.get_backend() == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
        return cls(dist.get_rank(), dist.get_world_size(), device)

    @property
    def alone(self) -> bool:
        """Whether there is no process group."""
        return self.device is None

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the ranks, known to all of them, differentiable.

        What is differentiated is the sum of all ranks' losses, so the gradient of a rank's part
        is the sum over the ranks too: what every rank computes from the sum alone must enter its
        loss by 1 / size.
        """
        return x if self.alone else _Sum.apply(x, self.device)  # type: ignore[no-untyped-call]

    def largest(self, x: Tensor) -> Tensor:
        """The entrywise largest over the ranks."""
        return x if self.alone else _reduced(x, self.device, dist.ReduceOp.MAX)

    def total(self, number: float) -> float:
        """The sum of one number over the ranks."""
        return number if self.alone else float(self.sum(torch.tensor(number, dtype=torch.float64)))

    def counts(self, number: int) -> list[int]:
        """This number of every rank."""
        if self.alone:
            return [number]
        mine = torch.zeros(self.size, dtype=torch.long)
        mine[self.rank] = number
        return [int(n) for n in self.sum(mine)]

    def rows(self, x: Tensor) -> Tensor:
        """The rows of all ranks, one rank after another, differentiable."""
        if self.alone:
            return x
        counts = self.counts(len(x))
        before, total = sum(counts[: self.rank]), sum(counts)
        empty = [x.new_zeros((n, *x.shape[1:])) for n in (before, total - before - len(x))]
        return self.sum(torch.cat((empty[0], x, empty[1])))

    def share(self, number: int) -> slice:
        """Which of so many things this rank takes: as many as any other, to within one."""
        return slice(number * self.rank // self.size, number * (self.rank + 1) // self.size)

    def gathered(self, value: Any) -> list[Any]:
        """A value of every rank, anything that JSON can hold."""
        if self.alone:
            return [value]
        text = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8).copy()
        sizes = self.counts(len(text))
        ends = np.cumsum(sizes)
        whole = self.rows(torch.from_numpy(text)).numpy().tobytes()
        return [json.loads(whole[end - n : end]) for end, n in zip(ends, sizes, strict=True)]

    def first(self, value: Any) -> Any:
        """The value of rank 0."""
        return self.gathered(value if self.rank == 0 else None)[0]

    def bytes_of_first(self, content: bytes) -> bytes:
        """The bytes that rank 0 holds."""
        mine = np.frombuffer(content if self.rank == 0 else b"", dtype=np.uint8)
        return self.rows(torch.from_numpy(mine.copy())).numpy().tobytes()

    def counted(self, tally: Counter[tuple[Any, Any]]) -> Counter[tuple[Any, Any]]:
        """The counts of all ranks, in the order in which their rows name things."""
        if self.alone:
            return tally
        total: Counter[tuple[Any, Any]] = Counter()
        for part in self.gathered([[*names, count] for names, count in tally.items()]):
            for task, label, count in part:
                total[task, label] += count
        for at, what in enumerate(("tasks", "labels")):
            kinds = sorted({type(names[at]).__name__ for names in total})
            if len(kinds) > 1:
                raise InputError(f"the ranks have {what} of several kinds: {', '.join(kinds)}")
        if not total:
            raise InputError("no rank has a row; give at least one of them one")
        return total

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Refuse to begin where the ranks are not about to do the same."""
        for name, mine in {} if self.alone else facts.items():
            values = self.gathered(mine)
            odd = [rank for rank, value in enumerate(values) if value != values[0]]
            if odd:
                raise InputError(
                    f"{name}: rank {odd[0]} of the process group has {str(values[odd[0]])[:100]}, "
                    f"and rank 0 has {str(values[0])[:100]}; give every rank the same"
                )

    def in_step(self, items: Iterable[Item]) -> Iterator[Item | None]:
        """The items of this rank, and then None for as long as another rank has more."""
        if self.alone:
            yield from items
            return
        mine = iter(items)
        while True:
            item = next(mine, None)
            if not self.total(item is not None):
                return
            yield item

    def digest(self, digest: str) -> str:
        """One digest of every rank's."""
        if self.alone:
            return digest
        return hashlib.sha256("".join(self.gathered(digest)).encode()).hexdigest()

    def spread(self, x: NDArray[Any]) -> Any:
        """The rows of all ranks as one array that every rank may read, slice by slice."""
        return x if self.alone else _Rows(x, self)

    def merged(self, parts: Mapping[int, Moments]) -> dict[int, Moments]:
        """The statistics of all ranks' samples; every rank names the same cells.

        n = sum_r n_r,  mean = sum_r (n_r / n) mean_r,  gap_r = mean_r - mean
        scatter = sum_r [ scatter_r + n_r gap_r gap_r' ]
        """
        if self.alone or not parts:
            return dict(parts)
        mine = torch.tensor([seen.count for seen in parts.values()], dtype=torch.float64)
        counts = self.sum(mine)
        weights = (mine / counts.clamp(min=1))[:, None]
        means = self.sum(weights * torch.stack([seen.mean for seen in parts.values()]))
        total = {}
        for at, (cell, seen) in enumerate(parts.items()):
            gap = seen.mean - means[at]
            cross = torch.outer(gap, gap) if seen.full else gap.square()
            scatter = self.sum(seen.scatter + seen.count * cross)
            total[cell] = Moments(float(counts[at]), means[at], scatter)
        return total

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Give every rank the gradient of the sum of all ranks' losses."""
        if self.alone:
            return
        mine = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        whole = self.sum(torch.cat([grad.flatten() for grad in mine]))
        for weight, grad in zip(weights, whole.split([w.numel() for w in weights]), strict=True):
            weight.grad = grad.view_as(weight)


ALONE = Group()
"""This process by itself."""


class _Sum(torch.autograd.Function):
    """y = sum_r x_r on every rank;  d(sum_r L_r)/dx_r = sum_r dL_r/dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: torch.device) -> Tensor:
        ctx.device = device
        return _reduced(x, device, dist.ReduceOp.SUM)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _reduced(gradient, ctx.device, dist.ReduceOp.SUM), None


def _reduced(x: Tensor, device: torch.device | None, how: Any) -> Tensor:
    value = x.detach().to(device).clone(memory_format=torch.contiguous_format)
    with _or_left_alone():
        dist.all_reduce(value, how)
        return value.to(x.device)


@contextmanager
def _or_left_alone() -> Iterator[None]:
    """What is said where another rank has ended: torch's own words name sockets."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise TrainingError(
            "another process of the group has ended or fallen silent, so this one ends too; the "
            f"model is unchanged. See what the others said, then run it again ({reason})"
        ) from error


class _Rows:
    """The rows of all ranks as an array of which every rank reads the same slices in turn."""

    def __init__(self, x: NDArray[Any], group: Group) -> None:
        self._x, self._group = x, group
        self._ends = np.cumsum(group.counts(len(x)))
        self.shape = (int(self._ends[-1]), x.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        start, stop, _ = rows.indices(len(self))
        first = int(self._ends[self._group.rank]) - len(self._x)
        mine = self._x[max(start - first, 0) : max(stop - first, 0)]
        whole: NDArray[np.float64] = self._group.rows(
            torch.from_numpy(np.array(mine, dtype=np.float64))
        ).numpy()
        return whole
