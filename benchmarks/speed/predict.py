"""Prediction over a hundred classes, against passes of the flow."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.clock import Options, Row, race, ratio
from benchmarks.speed.flows import CONTEXT, COUPLINGS, DIM, HALF, HIDDEN, paper_flow
from clbruno.config import recipe
from clbruno.core.calibration import Calibration
from clbruno.core.cells import ClassLatent, TaskLatent, Thin
from clbruno.core.flow import CellEmbedding, CouplingFlow, FlowSequence
from clbruno.core.model import CHUNK, Model, chunks_of
from clbruno.core.moments import Moments
from clbruno.data.scaling import Scaler
from clbruno.registry import Registry

ROWS, PAPER_ROWS, CLASSES, EACH = 10_000, 500, 100, 500


def rows(options: Options) -> list[Row]:
    """The default recipe with classes of low rank and nearly pooled ones; the paper's."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(ROWS, DIM, generator=generator, dtype=torch.float64)
    low, pooled = default_model(), default_model(rank=1)
    assert isinstance(low.latent, ClassLatent)
    cells = range(0, CLASSES, 33)
    truth = torch.stack([low.latent.law(cell).log_prob(x[:200]) for cell in cells], dim=1)
    gap = float((low.latent.log_prob(x[:200], cells) - truth).abs().max())
    assert gap < 1e-9, gap
    single, flow = paper_flow(0), paper_flow(0).double()
    with torch.no_grad():
        z, z_single = flow(x[:500])[0], single(x[:500].float())[0]
        log_prob, short = (low.latent.log_prob(each.double(), cells) for each in (z, z_single))
        seconds = race(
            {
                "low rank": lambda: answer(low, x),
                "nearly pooled": lambda: answer(pooled, x),
                "flow pass": lambda: [flow(x[part]) for part in chunks_of(len(x))],
                "flow pass, float32": lambda: [
                    single(x[part].float()) for part in chunks_of(len(x))
                ],
            },
            options.repeats,
        )
    shift = float(((short - log_prob) / log_prob).abs().max())
    rank = next(iter(low.latent.moments)).factor.shape[1]  # type: ignore[union-attr]
    what = f"prediction of {ROWS:,} rows over {CLASSES} classes, D = {DIM}, default recipe"
    found = [
        Row(
            f"{what}, {words}",
            "one pass of the paper's flow over the rows, float64",
            ratio(seconds, side, "flow pass", options.threads),
            mark,
            checked=f"log-densities within {gap:.0e} of each class's law on its own",
            details={"seconds": seconds, "log-density behind a float32 flow, relative": shift},
        )
        for side, words, mark in (
            ("low rank", f"{rank} directions a class", 3.0),
            ("nearly pooled", "one direction a class", 1.3),
        )
    ]
    return [*found, paper_row(options, x[:PAPER_ROWS])]


def paper_row(options: Options, x: Tensor) -> Row:
    """The paper's recipe needs one pass for every class."""
    model = paper_model()
    enter = [torch.randn(HIDDEN, HALF, dtype=torch.float64) for _ in range(COUPLINGS)]
    leave = [torch.randn(2 * HALF, HIDDEN, dtype=torch.float64) for _ in range(COUPLINGS)]

    def bare() -> None:
        for _ in range(CLASSES):
            for one, two in zip(enter, leave, strict=True):
                (x[:, :HALF] @ one.mT) @ two.mT

    few = model.log_likelihood(x[:20])
    alone = torch.cat([model.log_likelihood(row[None]) for row in x[:20]])
    gap = float((few - alone).abs().max() / few.abs().max())
    assert gap < 1e-12, gap
    seconds = race({"paper": lambda: answer(model, x), "products": bare}, options.repeats)
    return Row(
        f"prediction over {CLASSES} classes, D = {DIM}, paper recipe, {len(x)} rows",
        f"{CLASSES} passes of bare matrix products, float64",
        ratio(seconds, "paper", "products", options.threads),
        1.5,
        checked=f"rows together and one by one differ by {gap:.0e} of their value",
        details={"seconds": seconds},
    )


def answer(model: Model, x: Tensor) -> Tensor:
    """log p(y | x) of all rows, as the estimator asks for it."""
    parts = [model.posterior(x[part]).log_label() for part in chunks_of(len(x), CHUNK)]
    return torch.cat(parts)


def default_model(rank: int | None = None) -> Model:
    """A hundred classes of made statistics under the default recipe."""
    generator = torch.Generator().manual_seed(1)
    numbers = recipe("default")
    rank = numbers.memory // (CLASSES * DIM) if rank is None else rank
    mix = torch.randn(DIM, DIM, generator=generator, dtype=torch.float64) / 20
    pooled = mix @ mix.mT + torch.eye(DIM, dtype=torch.float64)
    moments = tuple(
        Thin(
            float(EACH),
            torch.randn(DIM, generator=generator, dtype=torch.float64),
            5 * torch.randn(DIM, rank, generator=generator, dtype=torch.float64),
        )
        for _ in range(CLASSES)
    )
    latent = ClassLatent(
        moments, CLASSES * EACH * pooled, (0,) * CLASSES, 0.3 * DIM, numbers.kappa, 0.1
    )
    flow = FlowSequence([CouplingFlow(DIM, 0, HIDDEN)])
    return _model(numbers.name, flow, None, latent)


def paper_model() -> Model:
    """The paper's flow and one latent, a hundred contexts."""
    generator = torch.Generator().manual_seed(2)
    nu = 1 + torch.rand(1, DIM, generator=generator, dtype=torch.float64)
    seen = Moments.of(torch.randn(50, DIM, generator=generator, dtype=torch.float64), full=False)
    latent = TaskLatent(nu, 0.4 * nu, (seen,), (0,) * CLASSES)
    embedding = CellEmbedding(
        torch.randn(1, CONTEXT, generator=generator, dtype=torch.float64),
        torch.randn(CLASSES, CONTEXT, generator=generator, dtype=torch.float64),
        torch.zeros(CLASSES, dtype=torch.long),
    )
    flow = FlowSequence([paper_flow(CONTEXT)]).double()
    return _model("paper", flow, embedding.requires_grad_(False), latent)


def _model(
    name: str,
    flow: FlowSequence,
    embedding: CellEmbedding | None,
    latent: ClassLatent | TaskLatent,
) -> Model:
    labels = [f"class {at:03d}" for at in range(CLASSES)]
    registry = Registry().extended("task", labels, [EACH] * CLASSES)
    ones = torch.ones(DIM, dtype=torch.float64)
    scaler = Scaler(1.0, False, 0 * ones, ones)
    nothing = torch.zeros((0, 0), dtype=torch.float64)
    return Model(
        recipe(name),
        registry,
        scaler,
        flow.requires_grad_(False),
        embedding,
        latent,
        temperature=2.0,
        curve=nothing,
        calibration=Calibration.empty(),
        seed=0,
    )
