"""Trains each example on JAX's CPU backend and on hloom, and compares loss, accuracy and time:

    python examples/compare_training.py --plot training.png

Runs that differ only in rounding diverge slowly, because training amplifies differences. To measure how far, the peer
trains again a few times with parameters perturbed by one ulp. hloom, whose rounding differs at every step, may diverge
from the peer a few times as far as those runs do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from digits import History

EXAMPLES = ("train_transformer", "train_convnet")
PEER, MINE = "cpu", "hloom"
PERTURBED_RUNS = 3
ALLOWED_SPREADS = 8


@dataclass
class Comparison:
    """The training runs of one example."""

    name: str
    peer: History
    mine: History
    perturbed: list[History]

    def spreads(self) -> list[float]:
        """Returns, by epoch, how far perturbed runs have diverged from the peer so far, at least one rounding error."""
        farthest, spreads = 0.0, []
        for epoch, loss in enumerate(self.peer.losses):
            farthest = max([farthest, 1.2e-7 * loss, *(abs(run.losses[epoch] - loss) for run in self.perturbed)])
            spreads.append(farthest)
        return spreads

    def distance(self) -> float:
        """Returns the maximum divergence of hloom from the peer, in spreads."""
        pairs = zip(self.peer.losses, self.mine.losses, self.spreads(), strict=True)
        return max(abs(mine - peer) / spread for peer, mine, spread in pairs)

    @property
    def agrees(self) -> bool:
        return self.distance() <= ALLOWED_SPREADS and abs(self.mine.accuracy - self.peer.accuracy) <= 0.01

    def report(self) -> str:
        peer, mine = (1e3 * statistics.median(run.step_seconds) for run in (self.peer, self.mine))
        apart = max(abs(mine - peer) for peer, mine in zip(self.peer.losses, self.mine.losses, strict=True))
        return (
            f"{self.name}: {'ok' if self.agrees else 'DIFFERS'}\n"
            f"  losses part by {apart:.1e} at most: {self.distance():.1f} times as far as after a rounding error\n"
            f"  test accuracy {self.peer.accuracy:.1%} on {PEER}, {self.mine.accuracy:.1%} on {MINE}\n"
            f"  a step takes {peer:.2f} ms on {PEER}, {mine:.2f} ms on {MINE}: {mine / peer:.2f} times as long\n"
            f"  the first step, compiled, {self.peer.first_step_seconds:.1f} s on {PEER}, "
            f"{self.mine.first_step_seconds:.1f} s on {MINE}"
        )


def compare(name: str, repetitions: int) -> Comparison:
    """Trains on both platforms alternately, and keeps the fastest run of each."""
    runs: dict[str, list[History]] = {PEER: [], MINE: []}
    for _ in range(repetitions):
        for platform, histories in runs.items():
            histories.append(train(name, platform))
    peer, mine = (min(histories, key=lambda run: statistics.median(run.step_seconds)) for histories in runs.values())
    return Comparison(name, peer, mine, [train(name, PEER, seed) for seed in range(1, 1 + PERTURBED_RUNS)])


def train(name: str, platform: str, perturb: int = 0) -> History:
    """Runs an example in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "history.json")
        script = Path(__file__).with_name(f"{name}.py")
        command = [sys.executable, str(script), "--json", str(path), "--perturb", str(perturb)]
        print(f"{name} on {platform}{f', perturbed ({perturb})' if perturb else ''}", file=sys.stderr, flush=True)
        subprocess.run(command, env={**os.environ, "JAX_PLATFORMS": platform}, stdout=subprocess.DEVNULL, check=True)
        return History(**json.loads(path.read_text()))


def plot(comparisons: list[Comparison], path: Path) -> None:
    """Plots loss curves, and below them their differences."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(comparisons), sharex="col", figsize=(5 * len(comparisons), 7), squeeze=False)
    for comparison, loss, difference in zip(comparisons, axes[0], axes[1], strict=True):
        epochs = range(1, 1 + len(comparison.peer.losses))
        loss.plot(epochs, comparison.peer.losses, linewidth=5, alpha=0.35, label=f"JAX on {PEER}")
        loss.plot(epochs, comparison.mine.losses, color="black", linewidth=1, label=f"JAX on {MINE}")
        loss.set(title=comparison.name, ylabel="training loss", yscale="log")
        pairs = zip(comparison.peer.losses, comparison.mine.losses, strict=True)
        difference.plot(epochs, [abs(mine - peer) for peer, mine in pairs], color="black", label=f"{MINE} from {PEER}")
        difference.plot(epochs, comparison.spreads(), linestyle="--", label="after a rounding error at the start")
        difference.set(xlabel="epoch", ylabel="difference of losses", yscale="log")
        difference.xaxis.get_major_locator().set_params(integer=True)
        loss.legend()
        difference.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=EXAMPLES)
    parser.add_argument("--plot", type=Path, help="Draw the loss curves as a .png or .svg file (with matplotlib).")
    parser.add_argument("--repetitions", type=int, default=1, help="Runs on each platform; the fastest counts.")
    options = parser.parse_args()
    comparisons = [compare(Path(name).stem, options.repetitions) for name in options.examples]
    for comparison in comparisons:
        print(comparison.report())
    if options.plot:
        plot(comparisons, options.plot)
    return int(not all(comparison.agrees for comparison in comparisons))


if __name__ == "__main__":
    sys.exit(main())
