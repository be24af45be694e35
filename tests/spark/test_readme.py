"""The README's example runs as it stands, from an empty directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_of_the_readme_runs_and_balances(tmp_path: Path) -> None:
    example = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"\| +(\d+)\|product \1\|", done.stdout), "the table that was shown has no product names"
    # 100 000 sales over 1200 products, of which 1000 are known: 83 full rounds and 400 more.
    assert "'rows_in': 100000, 'matched': 83400, 'unmatched': 16600, 'null_keys': 0" in done.stdout
