"""`bnncert` itself: help, version and the doctor."""

from __future__ import annotations

import subprocess
import sys

from commands import Run


def test_doctor_and_version(run: Run) -> None:
    code, text, _ = run("doctor")
    assert code == 0
    assert "float64        ok" in text
    assert run("--version")[1].startswith("bnncert 0.")


def test_help_does_not_load_torch() -> None:
    program = "import sys; from bnncert.cli.main import app; "
    program += "app(['certify', '--help'], standalone_mode=False); "
    found = subprocess.run(
        [sys.executable, "-c", program + "print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.rstrip().endswith("False")
