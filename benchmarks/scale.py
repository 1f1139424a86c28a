"""``python -m benchmarks scale``: the cost model of `docs/scale.md` against measurements.

Constants are fitted to small sizes and predict larger ones: seconds of the processor (not of the
wall: the machine may have other work), each the least of some repeats. Bytes, messages and the
peak of memory need no constants.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import lsq_linear

from benchmarks import machine
from benchmarks.runner import RESULTS
from clbruno import CLBrunoClassifier, Stream, save
from clbruno.config import RECIPES
from clbruno.core import calibration
from clbruno.core.model import LEVEL_SAMPLES
from clbruno.learn import calibrate
from clbruno.learn.tuning import LEAST_ROWS, RIDGES, ROWS_PER_CELL, TEMPERATURES

Record = dict[str, Any]
FILE = "scale.json"
STREAMED = (10**5, 10**6, 10**7)
FEATURES, CLASSES, PIECE = 100, 10, 5000


@dataclass(frozen=True)
class Size:
    """Rows, features and classes of one update."""

    n: int
    d: int
    k: int

    @property
    def thin(self) -> bool:
        """Whether the classes' covariances are kept to a low rank."""
        return self.k * self.d**2 > RECIPES["default"].memory

    @property
    def rank(self) -> int:
        """Numbers that a class keeps per feature, besides its mean."""
        return max(1, RECIPES["default"].memory // (self.k * self.d)) if self.thin else self.d

    @property
    def left_out(self) -> int:
        """Rows that are scored as if they had not been learned."""
        return self.k * min(self.n // self.k, max(ROWS_PER_CELL, LEAST_ROWS // self.k))

    @property
    def turns(self) -> int:
        """How many shares of the rows are scored by the statistics of the others."""
        return min(calibrate.MOST_FOLDS, -(-calibrate.WANTED // self.held))

    @property
    def held(self) -> int:
        """Rows of a share."""
        return self.k * max(2, round(0.1 * self.n / self.k))

    @property
    def scored(self) -> int:
        """Rows that calibrate the answers."""
        return self.turns * min(calibrate.MOST_ROWS, self.held)


SMALL = (
    *(Size(5_000, 20, 4), Size(20_000, 50, 4), Size(60_000, 50, 5), Size(10_000, 100, 10)),
    *(Size(4_000, 50, 40), Size(2_000, 100, 40), Size(4_000, 200, 5), Size(2_000, 300, 6)),
    *(Size(40_000, 100, 3), Size(8_000, 150, 20), Size(600, 20, 60), Size(4_000, 20, 120)),
    *(Size(8_000, 350, 4), Size(10_000, 250, 4), Size(8_000, 200, 20), Size(100_000, 100, 3)),
)
FAR = (
    *(Size(10**9, 100, 10), Size(10**9, 1_000, 100), Size(10**9, 1_000, 10**4)),
    *(Size(10**9, 10**4, 10**4), Size(10**9, 10**5, 10**4)),
)
SITES = 1000
LARGE = (Size(200_000, 100, 5), Size(20_000, 200, 30), Size(20_000, 350, 10))


def learning(size: Size) -> dict[str, float]:
    """How often one update of the default recipe does what costs time."""
    n, d, k = size.n, size.d, size.k
    scored = len(RIDGES) * size.left_out * k
    return {
        "update": 1,
        "row": n,
        "number": n * d,
        "scatter": n * d**2,
        "class": k,
        "entry left out": scored * d,
        "row left out": scored * d**2,
        "temperature": scored * len(TEMPERATURES),
        "link": size.scored * k * len(calibration.TEMPERATURES) * len(calibration.TAILS),
        "covariance": k * d**3,
    }


def held_back(size: Size) -> Size:
    """The answers that calibrate a model: to rows that it held back, and to generated ones."""
    most = calibrate.GENERATED_WORK // (size.k * size.d**2)
    made = max(calibrate.GENERATED, min(LEVEL_SAMPLES, most))
    return Size(size.scored + made, size.d, size.k)


def answering(size: Size) -> dict[str, float]:
    """The same for p(y | x) of `n` rows, once the model is warm."""
    n, d, k = size.n, size.d, size.k
    products = k * d * size.rank + d**2 if size.thin else k * d**2
    return {"call": 1, "number": n * d, "density": n * k, "product": n * products}


def file_bytes(size: Size) -> float:
    """The model file after one update: means, covariances, the pooled one, scale, calibration."""
    d, k = size.d, size.k
    curves = len(RIDGES) * len(TEMPERATURES)
    curves += len(calibration.TEMPERATURES) * len(calibration.TAILS) + 3 * k * calibration.KEPT
    return 8.0 * (k * d * (size.rank + 1) + d**2 + 2 * d + curves)


def message_bytes(size: Size) -> float:
    """What a rank puts into sums over the ranks for a first update in closed form.

    The scale of a first batch: its rows, in one pass for the rules and four for mean and spread.
    Statistics, of the rows held back and of the rest, for the model and again to calibrate it: of
    each class 48 bits in pieces of b, so ceil(48 / b) sums of D numbers and as many products of
    D x D as there are pairs of pieces.
    """
    n, d, k = size.n, size.d, size.k
    held = size.held // k
    numbers = 0.0
    for rows in (*(n / k - held, held) * 2, *[held] * size.turns):
        bits = 52 - int(np.ceil(np.log2(rows)))
        short = -(-48 // (bits // 2))
        pairs = sum(short - 2 * i for i in range((short + 1) // 2))
        numbers += k * (2 * d + -(-48 // bits) * d + pairs * d**2)
    scaled = (min(n, 8192) + 4 * n) * d
    return 8.0 * (numbers + scaled + n + size.scored * (k + 1))


def made(size: Size, seed: int = 0) -> tuple[Any, Any]:
    """Rows of classes around means of their own, in float32."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(size.n) % size.k)
    mean = 3 * np.random.default_rng(99).standard_normal((size.k, size.d), dtype=np.float32)
    return rng.standard_normal((size.n, size.d), dtype=np.float32) + mean[y], y


def seconds(action: Callable[[], object], repeats: int) -> float:
    """The least processor time of an action."""
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        action()
        taken.append(time.process_time() - began)
    return min(taken)


def measure(size: Size, repeats: int) -> Record:
    """Learning, answering and saving at one size."""
    x, y = made(size)
    model = CLBrunoClassifier(random_state=0, couplings=0)
    learn = seconds(lambda: model.fit(x, y), repeats)
    part = x[:4000]
    model.predict_proba(part)
    # So short that other work on the machine can fall on every one of a few repeats.
    answer = seconds(lambda: model.predict_proba(part), 4 * repeats)
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "m.clb")
        stored = (Path(folder) / "m.clb").stat().st_size
    return {**vars(size), "learn_s": learn, "answer_s": answer, "file_bytes": stored}


def fitted(terms: list[dict[str, float]], taken: list[float]) -> dict[str, float]:
    """Seconds of each term, none negative, with the least relative errors."""
    names = list(terms[0])
    matrix = np.array([[each[name] for name in names] for each in terms])
    weights = 1 / np.array(taken)
    scale = (matrix * weights[:, None]).max(0)
    weighted = matrix * weights[:, None] / scale
    found = lsq_linear(weighted, np.ones(len(taken)), bounds=(0, np.inf)).x
    return dict(zip(names, (found / scale).tolist(), strict=True))


def predicted(terms: dict[str, float], constants: dict[str, float]) -> float:
    """Seconds by the model."""
    return sum(constants[name] * count for name, count in terms.items())


def asked(size: Size) -> Size:
    """The size of the answers that `measure` times."""
    return Size(min(size.n, 4000), size.d, size.k)


def costs(small: Sequence[Size], large: Sequence[Size], repeats: int) -> Record:
    """Fit the constants at small sizes and compare at large ones."""
    measure(small[0], 1)  # the first call loads what torch loads late
    seen = [measure(size, repeats) for size in small]
    return checked(seen, [measure(size, repeats) for size in large])


def checked(seen: list[Record], rows: list[Record]) -> Record:
    """The constants that the first measurements ask for, and what they say of the second."""
    small = [Size(row["n"], row["d"], row["k"]) for row in seen]
    answer = fitted([answering(asked(size)) for size in small], [row["answer_s"] for row in seen])
    held = [predicted(answering(held_back(size)), answer) for size in small]
    taken = [row["learn_s"] - known for row, known in zip(seen, held, strict=True)]
    learn = fitted([learning(size) for size in small], taken)
    for row in rows:
        size = Size(row["n"], row["d"], row["k"])
        known = predicted(answering(held_back(size)), answer)
        row["learn_predicted_s"] = known + predicted(learning(size), learn)
        row["answer_predicted_s"] = predicted(answering(asked(size)), answer)
        row["file_predicted_bytes"] = file_bytes(size)
    constants = {"learning": learn, "answering": answer}
    return {"constants_s": constants, "calibration": seen, "check": rows}


def far(size: Size, constants: dict[str, dict[str, float]]) -> Record:
    """What the model says of a size that does not fit here; days of one core."""
    terms, known = learning(size), constants["learning"]
    days = {name: known[name] * count / 86_400 for name, count in terms.items()}
    each = predicted({**answering(size), "call": 0}, constants["answering"]) / size.n
    return {
        **vars(size),
        "learn_days": {name: spent for name, spent in days.items() if spent >= 0.01},
        "answer_s_per_row": each,
        "covariance_bytes": 8.0 * size.d**2,
        "full_bytes": 8.0 * size.k * size.d**2,
        "file_bytes": file_bytes(size),
        "files_of_sites_bytes": SITES * file_bytes(size),
        "message_bytes": message_bytes(size),
    }


def messages(sizes: Sequence[Size]) -> list[Record]:
    """Count what one rank sends in an update, in a process group of one."""
    original, sent = dist.all_reduce, [0, 0]

    def counted(value: torch.Tensor, *rest: Any) -> Any:
        sent[0] += 1
        sent[1] += value.numel() * value.element_size()
        return original(value, *rest)

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/s", rank=0, world_size=1)
        dist.all_reduce = counted
        try:
            for size in sizes:
                sent[:] = [0, 0]
                CLBrunoClassifier(random_state=0, couplings=0).fit(*made(size))
                facts = {"messages": sent[0], "bytes": sent[1]}
                rows.append({**vars(size), **facts, "predicted_bytes": message_bytes(size)})
        finally:
            dist.all_reduce = original
            dist.destroy_process_group()
    return rows


def streamed(rows: int) -> Record:
    """Learn so many rows through the default buffer; the peak is that of a process of its own."""
    size = Size(PIECE, FEATURES, CLASSES)
    pieces = (made(size, seed) for seed in range(rows // PIECE))
    began = time.process_time()
    model = CLBrunoClassifier(random_state=0, couplings=0).partial_fit(Stream(pieces))
    assert int(model.class_count_.sum()) == rows
    peak = machine.peak_mib_of_process()
    taken = time.process_time() - began
    return {"rows": rows, "features": FEATURES, "peak_mib": peak, "cpu_s": round(taken, 2)}


def in_a_process(rows: int) -> Record:
    """`streamed` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks", "scale", "--stream", str(rows)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Record = json.loads(ended.stdout)
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure all of it and write one JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__)
    parser.add_argument("--stream", type=int, metavar="ROWS", help="one streamed run, as JSON")
    parser.add_argument("--part", choices=("cost", "memory", "far"), help="measure this part alone")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.stream is not None:
        print(json.dumps(streamed(given.stream)))
        return 0
    path = given.results / FILE
    record: Record = json.loads(path.read_text()) if given.part and path.exists() else {}
    if given.part in (None, "cost"):
        record["cost"] = costs(SMALL, LARGE, given.repeats)
        record["messages"] = messages(LARGE)
    if given.part in (None, "memory"):
        record["memory"] = [in_a_process(rows) for rows in STREAMED]
    facts = {"command": "python -m benchmarks scale", "versions": machine.versions()}
    record = {**facts, "hardware": machine.hardware("cpu"), **record}
    if "cost" in record:
        record["far"] = [far(size, record["cost"]["constants_s"]) for size in FAR]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0
