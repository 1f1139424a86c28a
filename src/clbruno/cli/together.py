"""One command in several processes that torchrun has started."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from clbruno.errors import SmallClassWarning
from clbruno.estimator import CLBrunoClassifier
from clbruno.learn.distributed import Group
from clbruno.persist import atomic, load

_TOLD = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""What torchrun tells each process of a group in its environment."""


@contextmanager
def joined(device: str) -> Iterator[Group]:
    """The group that this process was started in; without torchrun this process alone."""
    if not os.environ.keys() >= _TOLD:
        yield Group()
        return
    on_gpu = torch.cuda.is_available() and (device == "auto" or device.startswith("cuda"))
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    group = Group.current()
    if group.rank:
        warnings.simplefilter("ignore", SmallClassWarning)  # rank 0 says it
    yield group
    # Not after an error: a rank that has failed must not wait for the others.
    dist.destroy_process_group()


@contextmanager
def writing(path: str, group: Group) -> Iterator[atomic.Target]:
    """The model file under its lock, which rank 0 alone holds and writes."""
    with atomic.writing(path) if group.rank == 0 else nullcontext() as target:
        yield target or atomic.Target(Path(os.path.realpath(path)))
        group.first("written")  # the others succeed only if rank 0 does


def load_of_first(path: Path, group: Group) -> CLBrunoClassifier | None:
    """The model that rank 0 finds; None where it finds none."""
    if group.alone:
        return load(path) if path.exists() else None
    content = group.bytes_of_first(path.read_bytes() if group.rank == 0 and path.exists() else b"")
    if not content:
        return None
    if group.rank == 0:
        return load(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(content)
        return load(copy)
