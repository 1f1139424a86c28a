"""``python -m benchmarks.fetch NAME --cache DIR --data DIR``: originals in the experiments' form.

The files are downloaded into the cache, or found there, and their checksums are verified. MNIST
and PANCAN become files of the data folder; of CIFAR-100 the archive is what
``python -m benchmarks.backbone`` reads. The iAtlas tables have no address without an account:
``originals.ici`` reads them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import originals
from benchmarks.data import Arrays, DataError
from benchmarks.originals import Source

MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
GDC = "https://api.gdc.cancer.gov/data/"
SOURCES = {
    "mnist": tuple(
        Source(name, MNIST + name, digest)
        for name, digest in {
            "train-images-idx3-ubyte.gz": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
            ),
            "train-labels-idx1-ubyte.gz": (
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
            ),
            "t10k-images-idx3-ubyte.gz": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
            ),
        }.items()
    ),
    "cifar100": (
        Source(
            "cifar-100-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        ),
    ),
    "pancan": (
        Source(
            "EBPlusPlusAdjustPANCAN_IlluminaHiSeq_RNASeqV2.geneExp.tsv",
            GDC + "3586c0da-64d0-4b74-a449-5ff4d9136611",
            "02e72c33071307ff6570621480d3c90b",
            "md5",
        ),
        Source(
            "clinical_PANCAN_patient_with_followup.tsv",
            GDC + "0fc78496-818b-4896-bd83-52db1f533c5c",
            "ffcb35edda305dd8d615497f9214eb92",
            "md5",
        ),
    ),
}
READERS: dict[str, Callable[[list[Path]], Arrays]] = {
    "mnist": lambda paths: originals.mnist(paths[0].parent),
    "pancan": lambda paths: originals.pancan(*paths),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, verify, read, write; 2 where a file cannot be had or is not what it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fetch", description=__doc__)
    parser.add_argument("name", choices=SOURCES)
    parser.add_argument("--cache", type=Path, required=True, help="folder of the downloads")
    parser.add_argument("--data", type=Path, help="folder of the data files")
    asked = parser.parse_args(arguments)
    reader = READERS.get(asked.name)
    if reader and asked.data is None:
        parser.error(f"{asked.name} needs --data, the folder to write {asked.name}.npz into")
    try:
        paths = [originals.fetch(source, asked.cache) for source in SOURCES[asked.name]]
        arrays = reader(paths) if reader else None
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arrays is not None:
        asked.data.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(asked.data / f"{asked.name}.npz", **arrays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
