"""Options that several commands share, so that they are called, checked and explained alike."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.listing import Output

OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]

PRESETS = (
    "default", "fifo", "strict-fifo", "class", "fair", "sjf", "srtf", "deadline", "conservative", "fgd",
    "pack",
)  # fmt: skip
"""For the help, which does not wait for the policies to be imported (a test holds the two equal)."""

SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Same seed, same result.")]

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write a report with plots here: one HTML file that needs no network.",
        show_default=False,
    ),
]
