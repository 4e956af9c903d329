"""Commands that carry another command line, as in `yard run -g 1 -- python3 train.py --lr 1`."""

from typing import Any

from typer.core import TyperCommand

DASHES = "gpuyard.dashes"


class WordsCommand(TyperCommand):
    """Knows whether `--` stood before the words: what follows it is a command line, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the dashes, which are gone afterwards."""
        ctx.meta[DASHES] = "--" in args
        return super().parse_args(ctx, args)
