"""The two rows of a GPU: one incremental step, and the whole S-CIFAR-100 sequence.

Needs torch and numpy alone. Every part is tried on its own and its error recorded, and the file
is written anew after each, so that a run that is cut short leaves what it had measured.
"""

from __future__ import annotations

import cProfile
import io
import json
import pstats
import re
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import machine
from benchmarks.speed.setting import CLASSES, Setting, batch_of, features, lesson
from clbruno.config import recipe
from clbruno.core.model import chunks_of
from clbruno.learn.engine import learn
from clbruno.learn.problem import Increment
from clbruno.learn.trainer import Step

STEP_MARK_MS, SEQUENCE_MARK_S = 1.0, 20.0
EPOCHS = 30
REPEATS, STEPS = 7, 100
Record = dict[str, Any]


class Variant:
    """An increment whose step is taken in one of several ways."""

    def __init__(self, increment: Increment, *, recordable: bool, compiled: bool) -> None:
        self.increment = increment
        self.recordable = recordable
        self.loss: Callable[..., Tensor] = increment.loss
        if compiled:
            self.loss = torch.compile(increment.loss, dynamic=False)

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        """Those of the increment."""
        return self.increment.inputs()

    def score(self) -> float:
        """That of the increment."""
        return self.increment.score()


VARIANTS = {
    "eager": {"recordable": False, "compiled": False, "tf32": False},
    "recorded": {"recordable": True, "compiled": False, "tf32": False},
    "compiled": {"recordable": False, "compiled": True, "tf32": False},
    "compiled, recorded": {"recordable": True, "compiled": True, "tf32": False},
    "recorded, tf32": {"recordable": True, "compiled": False, "tf32": True},
    "compiled, recorded, tf32": {"recordable": True, "compiled": True, "tf32": True},
}


def main(folder: Path | None, device: str, results: Path, quick: bool) -> int:
    """Measure everything and write `gpu.json`; 1 if a part failed."""
    record: Record = {
        "what": "one incremental step and the whole sequence of the paper's CIFAR setting",
        "made_data": folder is None,
        "quick": quick,
        "device": device,
        "hardware": machine.hardware(device),
        "versions": machine.versions(),
        "command": f"python -m benchmarks speed --only gpu --device {device} --data DIR",
        "marks": {"step_ms": STEP_MARK_MS, "sequence_s": SEQUENCE_MARK_S},
        "errors": {},
    }
    results.mkdir(parents=True, exist_ok=True)
    arrays = features(folder)
    epochs = 2 if quick else EPOCHS
    parts: dict[str, Callable[[], Any]] = {
        "sequence": lambda: sequence(arrays, device, epochs, tf32=False),
        "kernels": lambda: kernels(arrays, device),
        "step": lambda: steps(arrays, device, lambda found: save({"step": found})),
        "update_profile": lambda: profile(arrays, device, epochs),
        "sequence_tf32": lambda: sequence(arrays, device, epochs, tf32=True),
    }

    def save(more: Record) -> None:
        text = json.dumps(record | more, indent=1) + "\n"
        (results / "gpu.json").write_text(text, encoding="utf-8")

    for name, part in parts.items():
        began = time.perf_counter()
        try:
            record[name] = part()
        except Exception:
            record["errors"][name] = last_error()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
        print(json.dumps(record.get(name, record["errors"].get(name)), indent=1)[:4000], flush=True)
        save({})
    return 1 if record["errors"] else 0


def last_error() -> str:
    """The error being handled, without the machine's folders."""
    return re.sub(r'File "[^"]*/', 'File "', traceback.format_exc())


def precise(tf32: bool) -> None:
    """Products in float32, or in the GPU's shortened form of it."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")


def wait(device: str) -> None:
    """Until the device has done all that it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def steps(arrays: Any, device: str, save: Callable[[Record], None]) -> Record:
    """Milliseconds of a step, every variant from the same start and on the same inputs."""
    setting = Setting.of(arrays, device)
    inputs = list(setting.increment().inputs())
    found: Record = {"batch": len(inputs[0][0]), "pseudo": len(inputs[0][2])}
    truth: tuple[float, Tensor] | None = None
    for name, ways in VARIANTS.items():
        try:
            precise(ways["tf32"])
            figures, loss, weights = one_variant(setting, inputs, ways, device)
            if truth is None:
                truth = loss, weights
            figures["loss_relative_to_eager"] = abs(loss / truth[0] - 1)
            figures["weights_relative_to_eager"] = float(
                (weights - truth[1]).norm() / truth[1].norm()
            )
            found[name] = figures
        except Exception:
            found[name] = {"error": last_error()}
        finally:
            precise(False)
        print(name, json.dumps(found[name])[:600], flush=True)
        save(found)
    agree = {
        name: figures["step_ms"]
        for name, figures in found.items()
        if isinstance(figures, dict) and figures.get("loss_relative_to_eager", 1) < 1e-3
    }
    found["fastest_that_agrees"] = min(agree, key=agree.__getitem__) if agree else None
    return found


def one_variant(
    setting: Setting, inputs: list[tuple[Tensor, ...]], ways: dict[str, bool], device: str
) -> tuple[Record, float, Tensor]:
    """Its times, and the summed loss and the weights after one epoch from the common start."""
    increment = setting.increment()
    problem = Variant(increment, recordable=ways["recordable"], compiled=ways["compiled"])
    step = Step(increment.student, problem, setting.recipe.learning_rate)
    began = time.perf_counter()
    for each in inputs:
        step(each)
    wait(device)
    first_epoch = time.perf_counter() - began
    loss = float(step.sums[0])
    weights = torch.cat([w.detach().flatten().double() for w in increment.student.parameters()])
    bare = repeated(lambda: [step(inputs[at % len(inputs)]) for at in range(STEPS)], device)
    loops = repeated(lambda: [step(each) for each in problem.inputs()], device)
    scores = repeated(problem.score, device)
    figures = {
        "step_ms": 1e3 * bare / STEPS,
        "step_with_its_share_of_data_and_teacher_ms": 1e3 * loops / len(inputs),
        "score_ms": 1e3 * scores,
        "first_epoch_s": first_epoch,
        "was_recorded": step.record is not None,
        "why_not_recorded": None if step.failure is None else str(step.failure)[:2000],
    }
    return figures, loss, weights


def repeated(work: Callable[[], Any], device: str) -> float:
    """Median seconds."""
    seconds = []
    for _ in range(REPEATS):
        wait(device)
        began = time.perf_counter()
        work()
        wait(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def kernels(arrays: Any, device: str) -> Record:
    """Where the time of a recorded step goes on the device."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    setting = Setting.of(arrays, device)
    increment = setting.increment()
    inputs = list(increment.inputs())
    step = Step(increment.student, increment, setting.recipe.learning_rate)
    for each in inputs[:10]:
        step(each)
    wait(device)
    kinds = [ProfilerActivity.CPU]
    if device.startswith("cuda"):
        kinds.append(ProfilerActivity.CUDA)
    taken = 10
    with torch_profile(activities=kinds) as seen:
        for each in inputs[:taken]:
            step(each)
        wait(device)
    rows = []
    for event in seen.key_averages():
        micros = getattr(event, "self_device_time_total", 0) or 0
        if micros:
            rows.append((micros / taken, event.count / taken, event.key[:120]))
    rows.sort(reverse=True)
    return {
        "device_us_per_step": sum(row[0] for row in rows),
        "launches_per_step": sum(row[1] for row in rows),
        "kernels": [{"us": a, "launches": b, "name": c} for a, b, c in rows[:25]],
    }


def profile(arrays: Any, device: str, epochs: int) -> Record:
    """What the host spends one later update on."""
    numbers = recipe("paper", max_epochs=epochs, patience=epochs)
    model = learn(None, lesson(*batch_of(arrays, 0), numbers, device), lambda epoch: None)
    profiler = cProfile.Profile()
    began = time.perf_counter()
    profiler.enable()
    learn(model, lesson(*batch_of(arrays, 1), numbers, device), lambda epoch: None)
    wait(device)
    profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("cumulative").print_stats(45)
    lines = [line.strip()[:140] for line in text.getvalue().splitlines() if line.strip()]
    return {"seconds": time.perf_counter() - began, "lines": lines}


def sequence(arrays: Any, device: str, epochs: int, *, tf32: bool) -> Record:
    """Seconds of all ten batches, every one for all its epochs, and the accuracy at the end."""
    precise(tf32)
    numbers = recipe("paper", max_epochs=epochs, patience=epochs)
    warm = numbers.with_overrides(max_epochs=1)
    learn(None, lesson(*batch_of(arrays, 0), warm, device), lambda epoch: None)
    wait(device)
    model, seconds = None, []
    for number in range(100 // CLASSES):
        began = time.perf_counter()
        model = learn(model, lesson(*batch_of(arrays, number), numbers, device), lambda epoch: None)
        wait(device)
        seconds.append(time.perf_counter() - began)
        print(f"batch {number}: {seconds[-1]:.2f} s", flush=True)
    precise(False)
    assert model is not None
    there = model.placed(torch.device(device))
    x, y = torch.from_numpy(arrays["x_test"]).double(), arrays["y_test"]
    labels = np.array(there.registry.labels)
    began = time.perf_counter()
    answers = [there.posterior(x[part]).log_label().argmax(1) for part in chunks_of(len(x))]
    accuracy = float(np.mean(labels[torch.cat(answers).numpy()] == y))
    return {
        "epochs": epochs,
        "seconds": sum(seconds),
        "seconds_per_batch": seconds,
        "best_epochs": [record.epochs for record in model.log],
        "accuracy": accuracy,
        "seconds_answering": time.perf_counter() - began,
    }
