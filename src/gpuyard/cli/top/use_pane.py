"""What each GPU does, a line for each: how busy it is, its memory, power and warmth, and whose jobs are on it."""

from collections.abc import Sequence

from rich.segment import Segment

from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.cli.top.colours import DIM, FREE, HEAD, WARN
from gpuyard.cli.top.side_panes import LinesPane
from gpuyard.quantities import percent_text, span
from gpuyard.reports.gpus import STALE_S, figure_text, memory_use_text
from gpuyard.wire.replies.fleet import GpuReply

_BAR_MAX = 20
_NAME_MAX = 16
_FIGURES = f"{'BUSY':>6}{'MEMORY':>13}{'POWER':>8}{'TEMP':>6}"
_JOBS_MIN = 16
_AGE = len("  59m59s old")


class UsePane(LinesPane):
    """GPUs and what they do. A dash is unknown, and figures that are old are dim, with their age."""

    def made(self, data: Sequence[GpuReply], width: int) -> list[list[Segment]]:
        """A header, and a line for each GPU."""
        if not data:
            return [[Segment("nothing is known of what GPUs do", DIM)]]
        longest = max(len("GPU"), min(_NAME_MAX, max([len(_name(gpu)) for gpu in data])))
        aside = _JOBS_MIN + (_AGE if any([_is_stale(gpu) for gpu in data]) else 0)
        bar = max(0, min(_BAR_MAX, width - longest - len(_FIGURES) - aside - 4))
        head = f"{'GPU':<{longest}}  {'':<{bar}}{_FIGURES}  JOBS"
        return [[Segment(head, HEAD)], *[self._gpu(gpu, longest, bar) for gpu in data]]

    def _gpu(self, gpu: GpuReply, longest: int, bar: int) -> list[Segment]:
        stale = _is_stale(gpu)
        style = self.colours.of(gpu["jobs"][0].get("tenant", "")) if gpu["jobs"] else FREE
        busy = gpu["busy_pct"]
        full = 0 if busy is None else round(bar * busy / 100)
        name = _name(gpu)
        name = name if len(name) <= longest else "…" + name[1 - longest :]
        figures = (
            f"{figure_text(busy, '%'):>6}{memory_use_text(gpu):>13}{figure_text(gpu['power_w'], ' W'):>8}"
        )
        figures += f"{figure_text(gpu['temperature_c'], ' C'):>6}"
        jobs = ", ".join([_job(each.get("user", ""), each["label"]) for each in gpu["jobs"]])
        return [
            Segment(f"{name:<{longest}}  "),
            Segment("━" * full, DIM if stale else style),
            Segment((" " if busy is None else "─") * (bar - full), FREE),
            Segment(figures, DIM if stale else None),
            Segment(f"  {span((gpu['age_s'] or 0) * 1000)} old" if stale else "", WARN),
            Segment(f"  {jobs or '-'}", style if jobs else DIM),
        ]


def mean_use(gpus: Sequence[GpuReply]) -> str:
    """How busy the GPUs with jobs are, for the head; empty: nobody knows."""
    known = [
        gpu["busy_pct"] for gpu in gpus if gpu["jobs"] and gpu["busy_pct"] is not None and not _is_stale(gpu)
    ]
    return f", {percent_text(sum(known) / len(known))} busy" if known else ""


def _is_stale(gpu: GpuReply) -> bool:
    # A server of an older release says nothing of it.
    return (gpu.get("age_s") or 0) > STALE_S


def _name(gpu: GpuReply) -> str:
    return f"{gpu['node']} {gpu['gpu']}"


def _job(user: str, label: str) -> str:
    return visible_text(f"{label} {user}" if user else label)
