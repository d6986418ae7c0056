"""Runs an HLO module that JAX produced on hloom: masked attention of two sequences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hloom as hl

PATH = Path(__file__).with_name("attention.hlo")

module = hl.load(PATH)
print(module.to_text(short=True))
print(f"{module}\n")

sys.stdout.flush()
status = subprocess.run(
    [sys.executable, "-m", "hloom", "run", str(PATH), "--random", "0", "--compare", "interpreter"]
).returncode

print(
    """
What to try next:
  hloom run examples/attention.hlo --random 0 --print 'dot*'      values of chosen instructions
  hloom run examples/attention.hlo --random 0 --stop-at inf       where the first infinity arises
  hloom show examples/attention.hlo --canonical                   names and order normalised
  python -c "import hloom as hl; help(hl.XlaBuilder)"              build programs yourself
(activate the virtual environment first: . .venv/bin/activate)"""
)
sys.exit(status)
