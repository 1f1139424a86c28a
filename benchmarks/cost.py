"""Section 5.3: what a step of training costs, and the pseudo-data in it, by N'."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import torch

from benchmarks import machine
from benchmarks.ours import Ours
from benchmarks.stream import Stream
from clbruno.learn.replay import Teacher

EPOCHS = 2
DRAWS = 50


def measure(model: Ours, stream: Stream) -> dict[str, Any]:
    """Seconds of a step of the second batch, statistics and scores included, and of a draw."""
    model.recipe = model.recipe.with_overrides(max_epochs=EPOCHS, patience=EPOCHS)
    first, second = stream.steps[:2]
    model.partial_fit(first.x, first.y, first.task)
    assert model.model is not None
    teacher = Teacher(
        model.model.placed(model.device, torch.float32),
        model.recipe.replay,
        model.recipe.replay_per_task,
    )
    draws = teacher.draws(torch.Generator().manual_seed(0))
    with machine.Meter(str(model.device)) as drawing:
        for replay in islice(draws, DRAWS):
            replay.x.sum().item()  # on a GPU, wait for it
    with machine.Meter(str(model.device)) as learning:
        model.partial_fit(second.x, second.y, second.task)
    rows = len(second.y) * (1 - model.recipe.validation_share)
    steps = EPOCHS * math.ceil(rows / model.recipe.batch_size)
    return {
        "seconds_a_step": learning.seconds / steps,
        "seconds_a_draw": drawing.seconds / DRAWS,
        "share_of_drawing": drawing.seconds / DRAWS * steps / learning.seconds,
        "peak_mib_learning": learning.peak_mib,
        "floats_stored": model.floats_stored,
    }
