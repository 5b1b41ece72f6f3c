"""Bundles: the certificates of one chunk in one file, an uncompressed zip archive.

A member's bytes are exactly those of a certificate's own file, so any program that unpacks zip
archives takes one out.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

BUNDLES = "bundles"


def pack(members: Iterable[tuple[str, bytes]]) -> bytes:
    """The archive; equal members give equal bytes, since none has a date."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def member_name(index: int, eps: float, method: str) -> str:
    """`000007_0.025_concentration-1f3a9c02.safetensors`: input, radius, method, its options."""
    return f"{index:06d}_{eps!r}_{method}.safetensors"
