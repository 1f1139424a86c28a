"""A calibration as a header and tensors, and back, with every bound checked."""

import math
from typing import Any

import torch
from torch import Tensor

from clbruno.core.calibration import (
    DENSITY,
    KEPT,
    LOGITS,
    TAILS,
    TEMPERATURES,
    Calibration,
    Link,
)
from clbruno.persist.checks import Fields, require, shaped


def encode(calibration: Calibration) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The numbers and the tensors of a calibration."""
    link = calibration.link
    header = {
        "temperature": link.temperature,
        "tail": "inf" if link.tail == math.inf else link.tail,
        "slope": link.slope,
        "offset": link.offset,
        "held": list(calibration.held),
    }
    return header, {
        "calibration.curve": calibration.curve,
        "calibration.reliability": calibration.reliability,
        "calibration.scores": calibration.scores,
    }


def decode(fields: Fields, tensors: dict[str, Tensor], cells: int) -> Calibration:
    """The calibration of a model."""
    link = Link(
        fields.positive("temperature"),
        fields.real_or_inf("tail"),
        fields.positive("slope"),
        fields.real("offset"),
    )
    require(link.tail > 0, "the tail of the link is not positive")
    held = Fields.whole_list(fields.items("held"), "the held-back scores", cells)
    fields.end()
    require(max(held, default=0) <= KEPT, "more scores are counted than a file keeps")
    shape = (len(TEMPERATURES), len(TAILS))
    curve = shaped(tensors, "calibration.curve", shape, torch.float64)
    counts = shaped(tensors, "calibration.reliability", (2 * LOGITS, 3), torch.float64)
    scores = shaped(tensors, "calibration.scores", (cells, 3, KEPT), torch.float64)
    there = torch.arange(KEPT) < torch.tensor(held)[:, None, None]
    risen = (scores.diff(dim=2) >= 0) | ~there[..., 1:]
    require(bool(risen.all()), "the held-back scores are not in order")
    masses = scores[:, :DENSITY]
    require(bool(((masses >= 0) & (masses <= 1)).all()), "a held-back share is not within 0 and 1")
    require(not bool(scores.masked_fill(there, 0.0).any()), "a score stands beyond those counted")
    return Calibration(link, curve, counts, held, scores)
