"""Peak memory of an update from a file much larger than what the update may hold."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.speed.clock import Options, Row

N, DIM, CLASSES = 1_000_000, 512, 10
CHUNK = 4096


def rows(options: Options) -> list[Row]:
    """One update of a million rows from a memory map, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        write(path)
        words = [sys.executable, "-m", "benchmarks.speed.memory", str(path)]
        ended = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    allowed = found["model"] + 3 * CHUNK * DIM * 8
    return [
        Row(
            f"peak memory of an update, n = {N:,} x {DIM} from a memory map, default recipe",
            "the model + 3 chunks in float64",
            found["peak"] / allowed,
            1.5,
            checked="the counts of the model are those of the rows",
            details={**found, "allowed": allowed, "file": N * DIM * 4},
        )
    ]


def write(path: Path) -> None:
    """The rows of ten classes, in turn."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(100_000, DIM)).astype(np.float32)
    block += (np.arange(len(block)) % CLASSES)[:, None] / 20
    with path.open("wb") as file:
        for _ in range(N // len(block)):
            file.write(block.tobytes())


class Peak(threading.Thread):
    """The most private memory of the process while it runs; pages of the map do not count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.over = 0, False

    def run(self) -> None:
        """Look every few milliseconds."""
        while not self.over:
            self.most = max(self.most, private())
            time.sleep(0.005)


def private() -> int:
    """Bytes of the process that no file stands behind."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def main() -> None:
    """Learn a little, then the whole map; print the peak above what was held before."""
    import torch

    from benchmarks.ours import count_numbers
    from clbruno import CLBrunoClassifier

    torch.set_num_threads(1)
    x = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=(N, DIM))
    y = np.arange(N) % CLASSES
    model = CLBrunoClassifier(random_state=0).fit(np.array(x[:20_000]), y[:20_000])
    before = private()
    peak = Peak()
    peak.start()
    began = time.perf_counter()
    model.partial_fit(x, y)
    seconds = time.perf_counter() - began
    peak.over = True
    peak.join()
    latent = model.model_.latent
    assert sum(seen.count for seen in latent.moments) == N + 20_000
    numbers = 8 * count_numbers(latent)
    print(json.dumps({"peak": peak.most - before, "model": numbers, "seconds": seconds}))


if __name__ == "__main__":
    main()
