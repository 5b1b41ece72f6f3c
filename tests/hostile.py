"""What runs when it is unpickled, and should never be."""

from __future__ import annotations

from pathlib import Path


class Bomb:
    """Leaves a file behind when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.target)!r}, 'w').close()",)
