"""A flow as tensors, and back. What is built is never larger than the tensors that fill it."""

from typing import Any

import torch
from torch import Tensor, nn

from clbruno.config import Recipe
from clbruno.core.flow import CouplingFlow, FlowSequence, Whitening
from clbruno.errors import ModelFileError
from clbruno.persist.checks import Fields, require, shaped


def compact(tensor: Tensor) -> Tensor:
    """The tensor in float32 where that loses nothing: weights are trained in float32."""
    short = tensor.detach().float()
    return short if torch.equal(short.double(), tensor.detach().double()) else tensor.detach()


def encode(flow: FlowSequence) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """The kinds of the flows in order, and their tensors."""
    kinds: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for at, part in enumerate(flow.flows):
        if isinstance(part, Whitening):
            kinds.append({"kind": "whitening"})
            # The inverse root and the determinant are not computed again: they would differ from
            # the model's in the last bit.
            state = dict(part.named_buffers())
        elif isinstance(part, CouplingFlow):
            kinds.append({"kind": "couplings", "count": len(part.layers)})
            state = part.state_dict()
        else:
            raise ModelFileError(f"a {type(part).__name__} cannot be written to a file")
        tensors |= {f"flow.{at}.{name}": compact(value) for name, value in state.items()}
    return kinds, tensors


def decode(kinds: list[Any], tensors: dict[str, Tensor], dim: int, recipe: Recipe) -> FlowSequence:
    """The flow of a model, in float64 and without gradients."""
    wanted = ["whitening", "couplings"] if recipe.whiten else ["couplings"]
    require(len(kinds) == len(wanted), f"the recipe asks for {len(wanted)} flows")
    parts: list[nn.Module] = []
    for at, (kind, name) in enumerate(zip(kinds, wanted, strict=True)):
        fields = Fields(kind, "a flow")
        found = fields.text("kind")
        require(found == name, f"the recipe asks for {name}, the file holds {found[:40]!r}")
        if name == "whitening":
            parts.append(_decode_whitening(f"flow.{at}.", tensors, dim))
        else:
            count = fields.whole("count", 0, len(tensors) + 1)
            require(count == recipe.couplings, "the recipe asks for another number of couplings")
            parts.append(_decode_couplings(f"flow.{at}.", tensors, dim, count, recipe))
        fields.end()
    return FlowSequence(parts).double().requires_grad_(False).eval()


def _decode_whitening(prefix: str, tensors: dict[str, Tensor], dim: int) -> Whitening:
    mean = shaped(tensors, prefix + "mean", (dim,)).double()
    root = shaped(tensors, prefix + "root", (dim, dim)).double()
    whitening = Whitening(mean, root)
    whitening.unroot = shaped(tensors, prefix + "unroot", (dim, dim)).double()
    whitening.ladj = shaped(tensors, prefix + "ladj", ()).double()
    return whitening


def _decode_couplings(
    prefix: str, tensors: dict[str, Tensor], dim: int, count: int, recipe: Recipe
) -> CouplingFlow:
    sizes = (dim // 2, dim - dim // 2)
    state: dict[str, Tensor] = {}
    for layer in range(count):
        fixed, moved = sizes if layer % 2 == 0 or dim == 1 else sizes[::-1]
        shapes: dict[str, tuple[int, ...]] = {
            "enter.weight": (recipe.hidden, fixed),
            "enter.bias": (recipe.hidden,),
            "leave.weight": (2 * moved, recipe.hidden),
            "leave.bias": (2 * moved,),
        }
        if recipe.context_dim:
            shapes["context.weight"] = (recipe.hidden, recipe.context_dim)
        for name, shape in shapes.items():
            state[f"layers.{layer}.{name}"] = shaped(
                tensors, f"{prefix}layers.{layer}.{name}", shape
            )
    # Only now that tensors of these shapes are there is anything of these shapes built. Its
    # starting weights are overwritten; their own generator keeps the global one untouched.
    flow = CouplingFlow(dim, count, recipe.hidden, recipe.context_dim, generator=torch.Generator())
    flow.double().load_state_dict(state)
    return flow
