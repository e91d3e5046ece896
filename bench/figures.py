"""Plots of the benchmarks as deterministic SVG files in ``bench/results/figures``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).resolve().parent / "results" / "figures"


def require() -> None:
    """Exit if matplotlib is missing; call before measuring."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SystemExit(
            "this benchmark draws: pip install 'chronicle-eventstore[plot]', or run it with --short"
        ) from None


def lines(
    name: str,
    title: str,
    x: str,
    y: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    log: str = "xy",
    ticks: Mapping[float, str] | None = None,
) -> Path:
    """Draw curves; ``log`` names the logarithmic axes, ``ticks`` labels the horizontal one."""
    figure, axes = _axes(title, x, y, log)
    for (label, points), marker in zip(series.items(), "osD^vP*X<>" * 4, strict=False):
        axes.plot([p[0] for p in points], [p[1] for p in points], marker=marker, label=label)
    if ticks:
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
    axes.legend(frameon=False)
    return _write(figure, name)


def _axes(title: str, x: str, y: str, log: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "chronicle"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
    return figure, axes


def _write(figure: Any, name: str) -> Path:
    from matplotlib import pyplot

    FIGURES.mkdir(parents=True, exist_ok=True)
    path = FIGURES / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return path
