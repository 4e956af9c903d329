"""Commands that carry another command line, as in `yard run -g 1 -- python3 train.py --lr 1`."""

from typing import Any

from typer.core import TyperCommand

DASHES = "gpuyard.dashes"
OPTIONS = "gpuyard.options"


class WordsCommand(TyperCommand):
    """Knows whether `--` stood before the words: what follows it is a command line, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the dashes and what stood before them, which are gone afterwards."""
        typed = list(args)
        left = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        own = typed[: len(typed) - len(words)]
        ctx.meta[DASHES] = own[-1:] == ["--"]
        ctx.meta[OPTIONS] = tuple(own[:-1] if own[-1:] == ["--"] else own)
        return left
