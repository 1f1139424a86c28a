"""Forward and backward of the paper's flow, against its bare products and other libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.speed.clock import Options, Row, race, ratio
from clbruno.core.coupling import Context
from clbruno.core.flow import CouplingFlow

DIM, HIDDEN, COUPLINGS, BATCH, CONTEXT = 512, 256, 6, 512, 128
HALF = DIM // 2
LIBRARIES = ("clbruno", "zuko", "normflows", "nflows", "FrEIA")


def rows(options: Options) -> list[Row]:
    """Ours by its products, eager and compiled; then every library by the same products."""
    x, flow = rows_of(), paper_flow(CONTEXT)
    table = torch.randn(10, CONTEXT, requires_grad=True)
    cell = torch.arange(BATCH) % 10

    def loss(flow: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
        z, ladj = flow(x, Context(table, cell))
        return 0.5 * z.square().sum() - ladj.sum()

    compiled = torch.compile(flow, dynamic=False)
    gap = abs(float(loss(compiled) / loss(flow)) - 1)
    assert gap < 1e-5, gap
    seconds = race(
        {
            "eager": lambda: loss(flow).backward(),
            "compiled": lambda: loss(compiled).backward(),
            "products": products(),
        },
        3 * options.repeats,
    )
    sizes = f"{COUPLINGS} couplings, D = {DIM}, hidden {HIDDEN}, batch {BATCH}"
    found = [
        Row(
            f"forward + backward of the paper's flow ({sizes}), {way}",
            "its bare matrix products, forward and backward",
            ratio(seconds, way, "products", options.threads),
            mark,
            checked=f"compiled and eager loss differ by {gap:.0e} of their value",
            details={"seconds": seconds},
        )
        for way, mark in (("eager", 1.5), ("compiled", 1.25))
    ]
    return [*found, beside_others(options)]


def beside_others(options: Options) -> Row:
    """The same flow without labels in each library, each in a process of its own."""
    times: dict[str, float] = {}
    errors: dict[str, str] = {}
    for name in LIBRARIES:
        words = [sys.executable, "-m", "benchmarks.speed.flows", name]
        words += [str(options.threads), str(3 * options.repeats)]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        if ended.returncode:
            errors[name] = ended.stderr.strip().splitlines()[-1]
        else:
            times[name] = json.loads(ended.stdout.splitlines()[-1])
    others = {name: each for name, each in times.items() if name != "clbruno"}
    fastest = min(others, key=others.__getitem__)
    return Row(
        "the same without labels, eager",
        f"the fastest of {', '.join(others)}: {fastest}",
        times["clbruno"] / times[fastest],
        1.0,
        checked="each library's own inverse and log-determinant are its own to test",
        details={"by the bare products of the same process": times, "errors": errors},
    )


def rows_of() -> Tensor:
    """What all flows are given."""
    return torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(0))


def paper_flow(context: int) -> CouplingFlow:
    """The paper's flow with weights that do something."""
    flow = CouplingFlow(DIM, COUPLINGS, HIDDEN, context, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in flow.layers:
            layer.leave.weight.normal_(0, 0.02, generator=torch.Generator().manual_seed(1))
    return flow


def products() -> Callable[[], None]:
    """The flow's matrix products alone: two forward and four backward per coupling."""
    a, g = torch.randn(BATCH, HALF), torch.randn(BATCH, 2 * HALF)
    enter, leave = torch.randn(HIDDEN, HALF), torch.randn(2 * HALF, HIDDEN)

    def multiply() -> None:
        for layer in range(COUPLINGS):
            hidden = a @ enter.mT
            hidden @ leave.mT
            g.mT @ hidden
            back = g @ leave
            back.mT @ a
            if layer:  # the first coupling's input has no gradient
                back @ enter

    return multiply


def _zuko() -> Callable[[Tensor], Tensor]:
    import zuko

    flow = zuko.flows.NICE(DIM, transforms=COUPLINGS, hidden_features=[HIDDEN])
    return lambda x: -flow().log_prob(x).sum()


def _normflows() -> Callable[[Tensor], Tensor]:
    import normflows

    layers: list[nn.Module] = []
    for _ in range(COUPLINGS):
        net = normflows.nets.MLP([HALF, HIDDEN, 2 * HALF], init_zeros=True)
        layers += [normflows.flows.AffineCouplingBlock(net), normflows.flows.Permute(DIM, "swap")]
    base = normflows.distributions.DiagGaussian(DIM, trainable=False)
    flow = normflows.NormalizingFlow(base, layers)
    return lambda x: flow.forward_kld(x) * len(x)


def _nflows() -> Callable[[Tensor], Tensor]:
    from nflows import distributions, flows, transforms

    class Net(nn.Sequential):
        def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
            return super().forward(x)

    def net(inputs: int, outputs: int) -> nn.Module:
        return Net(nn.Linear(inputs, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, outputs))

    half = torch.arange(DIM) < HALF
    masks = [half if layer % 2 else ~half for layer in range(COUPLINGS)]
    layers = [transforms.AffineCouplingTransform(mask.int(), net) for mask in masks]
    chain = transforms.CompositeTransform(layers)
    flow = flows.Flow(chain, distributions.StandardNormal([DIM]))
    return lambda x: -flow.log_prob(x).sum()


def _freia() -> Callable[[Tensor], Tensor]:
    from FrEIA import framework, modules

    def net(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, outputs))

    flow = framework.SequenceINN(DIM)
    for _ in range(COUPLINGS):
        flow.append(modules.AffineCouplingOneSided, subnet_constructor=net)
        flow.append(modules.PermuteRandom)

    def loss(x: Tensor) -> Tensor:
        z, ladj = flow(x)
        found: Tensor = 0.5 * z.square().sum() - ladj.sum()
        return found

    return loss


def _clbruno() -> Callable[[Tensor], Tensor]:
    flow = paper_flow(0)

    def loss(x: Tensor) -> Tensor:
        z, ladj = flow(x)
        return 0.5 * z.square().sum() - ladj.sum()

    return loss


MAKERS = {
    "clbruno": _clbruno,
    "zuko": _zuko,
    "normflows": _normflows,
    "nflows": _nflows,
    "FrEIA": _freia,
}


def main() -> None:
    """One library: its time by that of the bare products, printed."""
    name, threads, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    loss, x = MAKERS[name](), rows_of()
    seconds = race({"flow": lambda: loss(x).backward(), "products": products()}, repeats)
    print(json.dumps(ratio(seconds, "flow", "products", threads)))


if __name__ == "__main__":
    main()
