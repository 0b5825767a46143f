"""The command lines of README and docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND_LINES = sorted(
    {
        line.strip().removeprefix("$ ")
        for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
        for block in re.findall(r"^```\w*\n(.*?)^```", path.read_text(), re.M | re.S)
        for line in block.replace("\\\n", " ").splitlines()
        if re.match(r"\s*(\$ )?dovetail [a-z]", line)
    }
)
"""The lines of blocks of code that call dovetail."""
SESSION = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[0]
"""The commands that README begins with, and the lines that they print."""
