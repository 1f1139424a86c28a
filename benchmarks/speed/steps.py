"""A whole incremental step against its likelihood alone."""

from __future__ import annotations

import torch

from benchmarks.speed.clock import Options, Row, race, ratio
from benchmarks.speed.setting import Setting, features
from clbruno.learn.trainer import Step


def rows(options: Options) -> list[Row]:
    """One epoch of the paper's CIFAR setting with and without a teacher."""
    setting = Setting.of(features(options.folder), "cpu")
    problems = {
        "incremental": setting.increment(),
        "likelihood alone": setting.increment(replay=False),
    }
    steps = {
        name: Step(problem.student, problem, setting.recipe.learning_rate)
        for name, problem in problems.items()
    }
    taken = {name: len(list(problem.inputs())) for name, problem in problems.items()}
    assert len(set(taken.values())) == 1
    gap = regulariser_at_start(setting)
    assert gap < 1e-9, gap
    seconds = race(
        {
            name: lambda name=name: [steps[name](each) for each in problems[name].inputs()]  # type: ignore[misc]
            for name in problems
        },
        options.repeats,
    )
    first = next(iter(problems["incremental"].inputs()))
    return [
        Row(
            "whole incremental step (new likelihood, teacher's sampling, L', R), N' = 128",
            "the likelihood step alone",
            ratio(seconds, "incremental", "likelihood alone", options.threads),
            2.5,
            checked=f"R per number is {gap:.0e} while the new flow is the old one",
            details={
                "seconds of an epoch": seconds,
                "steps": taken["incremental"],
                "rows": len(first[0]),
            },
        )
    ]


def regulariser_at_start(setting: Setting) -> float:
    """R per number before any step."""
    from clbruno.learn.objective import functional

    increment = setting.increment()
    assert increment.teacher is not None
    replay = increment.teacher.draw(increment.generator)
    with torch.no_grad():
        context = increment.student.context(replay.cell)
        found = functional(increment.student.flow, replay, context)
    return float(found) / replay.x.numel()
