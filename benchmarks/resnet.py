"""ResNet-18 in its form for images of 32 x 32 (He et al., 2016): a 3 x 3 stem and no pooling."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, relu

WIDTHS = (64, 128, 256, 512)


def convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    """A convolution without bias and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Block(nn.Module):
    """relu(F(x) + x), with a 1 x 1 convolution of x where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride)
        self.second = convolution(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's answer."""
        return relu(self.second(relu(self.first(x))) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks, the mean over the plane, and one linear layer."""

    def __init__(self, classes: int, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        blocks: list[nn.Module] = [convolution(3, widths[0], 3, 1), nn.ReLU()]
        before = widths[0]
        for stage, width in enumerate(widths):
            blocks += [Block(before, width, 1 if stage == 0 else 2), Block(width, width, 1)]
            before = width
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)

    def features(self, x: Tensor) -> Tensor:
        """The layer before the last: one vector per image (n, 3, 32, 32)."""
        return adaptive_avg_pool2d(self.body(x), 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))
