"""Every method of the tables: how it is made, its stated grid, and where it applies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import ours
from benchmarks.rivals.base import Rival
from benchmarks.rivals.boovae import BooVAE
from benchmarks.rivals.ewc import EWC
from benchmarks.rivals.fecam import FeCAM
from benchmarks.rivals.flows import ClassFlows
from benchmarks.rivals.lda import NearestMean, StreamingLDA
from benchmarks.rivals.linear import FeTrIL, JointLogistic
from benchmarks.rivals.lwf import LwF
from benchmarks.rivals.mergan import MeRGAN
from benchmarks.rivals.mlp import FineTuning, JointMLP
from benchmarks.rivals.npcl import NPCL
from benchmarks.rivals.ranpac import RanPAC
from benchmarks.rivals.replay import GenerativeReplay
from benchmarks.rivals.shrunk import ShrunkCovariances
from benchmarks.rivals.si import SI
from benchmarks.rivals.ssre import SSRE
from benchmarks.rivals.vae import ClassVAEs

Settings = Mapping[str, Any]
LIKE = {"cifar100-images": "cifar100"}
"""Experiments that take the methods and grids of another."""
EVERYWHERE = ("synthetic", "cifar100", "mnist", "pancan", "ici")


@dataclass(frozen=True)
class Method:
    """One row of the tables.

    ``grid`` is searched on validation rows split off the training batches; ``only`` replaces
    entries of the grid for one experiment; ``quick`` are settings of the quick form. ``seeded``
    methods use chance; those with a ``density`` are asked for outliers too.
    """

    title: str
    make: Callable[..., Rival]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    where: tuple[str, ...] = EVERYWHERE
    device: bool = False
    seeded: bool = False
    density: bool = False
    note: str = ""

    def applies(self, experiment: str) -> bool:
        """Whether the method has a row in the table of an experiment."""
        return LIKE.get(experiment, experiment) in self.where

    def searched(self, experiment: str) -> dict[str, Sequence[Any]]:
        """The grid for one experiment."""
        return {**self.grid, **self.only.get(LIKE.get(experiment, experiment), {})}

    def settings(self, experiment: str) -> list[dict[str, Any]]:
        """Every point of the grid for one experiment."""
        grid = self.searched(experiment)
        return [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]


PIXELS = {"mnist": {"scale": ["none"]}}
TRAINED: dict[str, Any] = {
    "only": {**PIXELS, "ici": {"epochs": [20]}},
    "quick": {"hidden": 32, "epochs": 3},
    "device": True,
    "seeded": True,
}
FEATURE_GRID = {"strength": [1.0, 3.0, 10.0, 30.0], "ridge": [1e-4, 1e-2]}
RATES: dict[str, Sequence[Any]] = {
    "scale": ["standard"],
    "lr": [1e-3, 1e-4],
    "epochs": [10],
    "hidden": [800],
}
PIECE = {**RATES, "over": ["piece"]}
"""Fine-tuning alone also tries all outputs; its records show how much worse that is."""

METHODS: dict[str, Method] = {
    "clbruno": Method(
        "CL-BRUNO, default recipe",
        ours.default,
        device=True,
        seeded=True,
        density=True,
        quick=ours.QUICK,
    ),
    "clbruno-front": Method(
        "CL-BRUNO, default recipe, fixed front for images",
        ours.on_images,
        where=("mnist",),
        device=True,
        seeded=True,
        quick=ours.QUICK,
    ),
    "clbruno-paper": Method(
        "CL-BRUNO, paper's recipe",
        ours.paper,
        where=(*EVERYWHERE, "cost"),
        device=True,
        seeded=True,
        density=True,
        quick=ours.QUICK_PAPER,
    ),
    "clbruno-paper-64": Method(
        "CL-BRUNO, paper's recipe, N' = 64",
        ours.paper,
        {"replay": [64]},
        where=("cifar100", "cost"),
        device=True,
        seeded=True,
        quick=ours.QUICK_PAPER,
    ),
    "clbruno-paper-32": Method(
        "CL-BRUNO, paper's recipe, N' = 32",
        ours.paper,
        {"replay": [32]},
        where=("cifar100", "cost"),
        device=True,
        seeded=True,
        quick=ours.QUICK_PAPER,
    ),
    "clbruno-paper-oracle": Method(
        "CL-BRUNO, paper's recipe, all data at once (oracle)",
        ours.paper_oracle,
        where=("synthetic", "pancan", "ici"),
        device=True,
        seeded=True,
        quick=ours.QUICK_PAPER,
    ),
    "clbruno-oracle": Method(
        "CL-BRUNO, default recipe, all data at once (oracle)",
        ours.oracle,
        device=True,
        seeded=True,
        quick=ours.QUICK,
    ),
    "ncm": Method("nearest class mean", NearestMean, {"scale": ["none", "standard"]}),
    "lda": Method("streaming LDA", StreamingLDA, {"ridge": [1e-4, 1e-3, 1e-2, 1e-1]}),
    "shrunk": Method(
        "class covariances shrunk to the pooled one",
        ShrunkCovariances,
        {"strength": [0.1, 1.0, 10.0, 30.0], "ridge": [1e-4, 1e-2, 1e-1, 1.0]},
        only={"cifar100": FEATURE_GRID},
        density=True,
    ),
    "shrunk-sqrt": Method(
        "class covariances shrunk to the pooled one, square-root features",
        ShrunkCovariances,
        {"scale": ["sqrt"], **FEATURE_GRID},
        where=("cifar100",),
    ),
    "fecam": Method("FeCAM", FeCAM, {"gamma": [1.0, 10.0, 100.0]}),
    "ranpac": Method(
        "RanPAC, 5,000 random features",
        RanPAC,
        {"scale": ["standard"], "ridge": [1e-4, 1e-3, 1e-2]},
        only={**PIXELS, "ici": {"ridge": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}},
        quick={"width": 200},
        seeded=True,
        note="pre-trained backbone and adapters left out: one random layer on the given inputs",
    ),
    "fetril": Method(
        "FeTrIL-style translation",
        FeTrIL,
        {"scale": ["standard"], "penalty": [1e-4, 1e-2]},
        only=PIXELS,
        quick={"iterations": 10},
        device=True,
        note="softmax regression in place of a linear SVM",
    ),
    "finetune": Method("fine-tuning", FineTuning, {**RATES, "over": ["piece", "all"]}, **TRAINED),
    "ewc": Method(
        "EWC",
        EWC,
        {**PIECE, "strength": [1e1, 1e2, 1e3, 1e4]},
        **TRAINED,
        note="Fisher diagonal from 200 rows of each batch, exact over the labels",
    ),
    "lwf": Method(
        "LwF",
        LwF,
        {**PIECE, "strength": [1.0, 3.0, 10.0]},
        **TRAINED,
        note="the new head is not warmed up alone first",
    ),
    "si": Method("SI", SI, {**PIECE, "strength": [0.1, 1.0, 10.0]}, **TRAINED),
    "class-vae": Method(
        "one VAE per class",
        ClassVAEs,
        where=("mnist",),
        quick={"hidden": 16, "latent": 2, "epochs": 2, "samples": 4},
        device=True,
        seeded=True,
        density=True,
    ),
    "class-flow": Method(
        "one flow per class",
        ClassFlows,
        where=("mnist",),
        quick={"hidden": 16, "couplings": 2, "epochs": 2},
        device=True,
        seeded=True,
        density=True,
    ),
    "replay": Method(
        "deep generative replay",
        GenerativeReplay,
        {"scale": ["none"], "lr": [1e-3, 1e-4], "epochs": [10], "hidden": [800]},
        where=("mnist",),
        quick={"hidden": 16, "epochs": 2, "generator_hidden": 16, "generator_epochs": 2},
        device=True,
        seeded=True,
        note="a VAE in place of the GAN as the generator",
    ),
    "mergan": Method(
        "MeRGAN, replay alignment",
        MeRGAN,
        {
            "scale": ["none"],
            "lr": [1e-3],
            "epochs": [10],
            "hidden": [800],
            "generator_epochs": [50],
            "strength": [0.1, 1.0],
        },
        only={"pancan": {"scale": ["standard"]}},
        where=("mnist", "pancan"),
        quick={"hidden": 16, "epochs": 2, "generator_hidden": 16, "generator_epochs": 2},
        device=True,
        seeded=True,
        note="fully connected generator and critic in place of convolutions; an MLP on replayed "
        "rows answers",
    ),
    "boo-vae": Method(
        "Boo-VAE",
        BooVAE,
        {"scale": ["none"], "lr": [1e-3], "epochs": [10], "hidden": [800], "strength": [1.0, 10.0]},
        where=("mnist",),
        quick={
            "hidden": 16,
            "epochs": 2,
            "generator_hidden": 16,
            "generator_epochs": 2,
            "components": 2,
            "steps": 3,
        },
        device=True,
        seeded=True,
        note="equal component weights, components added in five rounds by the first-order change "
        "of the KL with their entropy; an MLP on replayed rows answers",
    ),
    "ssre": Method(
        "SSRE",
        SSRE,
        {**RATES, "strength": [1.0, 10.0]},
        where=("cifar100",),
        quick={"hidden": 32, "epochs": 3},
        device=True,
        seeded=True,
        note="side branches on the layers of an MLP over features in place of convolutions",
    ),
    "npcl": Method(
        "NPCL, buffer of 500 rows",
        NPCL,
        {**RATES, "hidden": [256]},
        where=("cifar100",),
        quick={"hidden": 16, "epochs": 2, "memory": 40},
        device=True,
        seeded=True,
        note="keeps 500 rows; one global latent in place of the hierarchy of task latents",
    ),
    "joint-logistic": Method(
        "joint logistic regression (ceiling)",
        JointLogistic,
        {"scale": ["standard"], "penalty": [1e-4, 1e-3, 1e-2]},
        only=PIXELS,
        quick={"iterations": 10},
        device=True,
    ),
    "joint-mlp": Method(
        "joint MLP (ceiling)",
        JointMLP,
        {**RATES, "epochs": [30]},
        **{**TRAINED, "only": PIXELS},
    ),
}
