"""Networks as others write them, narrow: residual, plain, densely connected, separable, branching,
and of sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut; sums and activations are made in place."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = convolution(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            None
            if stride == 1 and inputs == outputs
            else nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """A stem with a pool, four stages of two blocks, a mean over the image, a linear head."""

    def __init__(self, width: int = 2, outputs: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for stage in range(1, 5):
            inputs, own = widths[stage - 1 : stage + 1]
            blocks = BasicBlock(inputs, own, 1 if stage == 1 else 2), BasicBlock(own, own)
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Vgg(nn.Module):
    """Convolutions and pools in a row, then dense layers with dropout."""

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for own in (4, "pool", 6, 6, "pool"):
            if own == "pool":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [
                    nn.Conv2d(channels, own, 3, padding=1),
                    nn.BatchNorm2d(own),
                    nn.ReLU(True),
                ]
                channels = own
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(24, 12), nn.ReLU(True), nn.Dropout(), nn.Linear(12, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


class DenseLayer(nn.Module):
    """Reads all layers before it, after a normalisation and an activation."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm, self.relu = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.conv = convolution(inputs, growth)

    def forward(self, before: list[Tensor] | Tensor) -> Tensor:
        features = [before] if isinstance(before, Tensor) else before
        return self.conv(self.relu(self.norm(torch.cat(features, 1))))


class DenseNet(nn.Module):
    def __init__(self, growth: int = 2, outputs: int = 5, ask: bool = False) -> None:
        super().__init__()
        self.stem = convolution(3, 4, stride=2)
        self.block = nn.ModuleList(DenseLayer(4 + growth * k, growth) for k in range(3))
        self.transition = nn.Sequential(
            nn.BatchNorm2d(10), nn.ReLU(), convolution(10, 5, 1), nn.AvgPool2d(2, 2)
        )
        self.norm = nn.BatchNorm2d(5)
        self.classifier = nn.Linear(5, outputs)
        self.ask = ask

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.block:
            single = self.ask and len(features) == 1
            features.append(layer(features[0] if single else features))
        x = functional.relu(self.norm(self.transition(torch.cat(features, 1))), inplace=True)
        return self.classifier(functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class Separable(nn.Module):
    """Inverted residuals: pointwise, depthwise, pointwise."""

    def __init__(self, outputs: int = 4) -> None:
        super().__init__()

        def step(inputs: int, own: int, stride: int, groups: int, size: int) -> nn.Module:
            conv = nn.Conv2d(inputs, own, size, stride, size // 2, groups=groups, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(own), nn.ReLU(inplace=True))

        self.stem = step(3, 4, 2, 1, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                step(4, 8, 1, 1, 1), step(8, 8, 1, 8, 3), convolution(8, 4, 1), nn.BatchNorm2d(4)
            )
            for _ in range(2)
        )
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(4, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.classifier(x.mean([2, 3]))


class Inception(nn.Module):
    """Four branches side by side, with a pool that counts windows over the edge."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.head = nn.Linear(9, outputs)  # made first, used last
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.one = nn.Conv2d(3, 2, 1)
        self.three = nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 3, (1, 3), padding=(0, 1))
        )
        self.five = nn.Sequential(nn.Conv2d(3, 2, 3, padding=2, dilation=2))
        self.last = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), nn.Conv2d(3, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        red = torch.unsqueeze(x[:, 0], 1) * 0.5 + 0.1
        x = self.pool(torch.cat((red, x[:, 1:]), 1))
        branches = [self.one(x), self.three(x), self.five(x), self.last(x)]
        x = torch.relu(torch.cat(branches, dim=1))
        return self.head(functional.avg_pool2d(x, x.size()[2:]).squeeze(-1).squeeze(-1))


class Sequence(nn.Module):
    """Convolutions of one dimension."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(2, 4, 3, padding="same")
        self.norm = nn.BatchNorm1d(4)
        self.conv2 = nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2, dilation=2)
        self.pool = nn.AvgPool1d(2)
        self.out = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool1d(torch.relu(self.norm(self.conv1(x))), 2)
        return self.out(self.pool(torch.tanh(self.conv2(x))).mean(dim=-1))
