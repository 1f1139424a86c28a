"""The network of the images: known sizes, and features that the later batches do not touch."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks import backbone
from benchmarks.data import made_images
from benchmarks.resnet import ResNet18

SMALL = backbone.Training(epochs=2, widths=(4, 4, 8, 8))


def test__resnet18__ten_classes__has_the_known_number_of_parameters() -> None:
    net = ResNet18(10)
    assert sum(parameter.numel() for parameter in net.parameters()) == 11_173_962
    assert net.eval().features(torch.zeros(2, 3, 32, 32)).shape == (2, 512)


def test__frozen_features__other_later_images__leave_the_first_ones_as_they_are() -> None:
    images = made_images(0, each=8)
    later = {**images, "x_train": images["x_train"].copy()}
    fresh = images["y_train"] >= backbone.FIRST
    later["x_train"][fresh] = 255 - later["x_train"][fresh]
    one, two = (backbone.frozen_features(each, 0, "cpu", SMALL) for each in (images, later))
    np.testing.assert_array_equal(one["x_train"][~fresh], two["x_train"][~fresh])
    np.testing.assert_array_equal(one["x_test"], two["x_test"])
    assert (one["x_train"][fresh] != two["x_train"][fresh]).any()


def test__train__made_images__separates_the_first_classes() -> None:
    images = made_images(0, each=32)
    first = images["y_train"] < backbone.FIRST
    scale = backbone.pixel_scale(images["x_train"][first])
    x = backbone.prepared(images["x_train"][first], scale)
    y = torch.as_tensor(images["y_train"][first])
    torch.manual_seed(0)
    net = backbone.train(x, y, "cpu", backbone.Training(20, 32, 0.1, 5e-4, (8, 8, 16, 16)))
    assert float((net(x).argmax(dim=1) == y).double().mean()) > 0.5  # chance is 0.1


def test__varied__images__are_mirrored_or_moved_copies() -> None:
    torch.manual_seed(0)
    x = torch.zeros(64, 1, 32, 32)
    x[:, :, 10, 12] = 1
    found = backbone.varied(x).nonzero()
    assert len(found) == 64
    rows, columns = found[:, 2], found[:, 3]
    assert set(rows.tolist()) == set(range(6, 15))
    assert set(columns.tolist()) <= {*range(8, 17), *range(15, 24)}
    assert torch.equal(backbone.varied(torch.ones(8, 1, 32, 32)).amax(dim=(2, 3)), torch.ones(8, 1))
