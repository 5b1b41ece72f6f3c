"""Training images moved and mirrored at random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

SHIFT = 4  # pixels an image is moved by at most, each way


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images x [batch, ..., height, width], each mirrored and moved at random.

    Mirrored left to right with probability 1/2, then moved by up to SHIFT pixels up or down and
    left or right; zeros come in at the edges.
    """
    height, width = x.shape[-2:]
    count = len(x)
    device = x.device
    mirror = torch.randint(2, (count, 1), generator=generator, device=device, dtype=torch.bool)
    down, right = torch.randint(2 * SHIFT + 1, (2, count, 1), generator=generator, device=device)

    # Where each pixel comes from in the padded image: rows [batch, height], columns [batch, width].
    across = torch.arange(width, device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.where(mirror, width - 1 - across, across)
    places = rows.unsqueeze(-1) * (width + 2 * SHIFT) + columns.unsqueeze(-2)

    # A gather over flat padded images, [batch, channels, pixels].
    padded = functional.pad(x, (SHIFT,) * 4)
    pixels = padded.reshape(count, -1, (height + 2 * SHIFT) * (width + 2 * SHIFT))
    index = places.flatten(1).unsqueeze(1).expand(-1, pixels.shape[1], -1)
    return pixels.gather(2, index).reshape(x.shape)
