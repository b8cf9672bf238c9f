"""Write the parts of the pages in docs that the code itself knows: commands, settings, errors, rights, kinds."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs import from_code  # noqa: E402 - the checkout is not on the path of a script

for page in from_code.write():
    print(f"Wrote {page.relative_to(ROOT)}.")
