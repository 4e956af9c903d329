"""Help with its options under headings, as plain text: twenty options in one list are hard to read."""

from typing import Any

from typer.core import TyperCommand

_REST = "Options"


class SectionedCommand(TyperCommand):
    """A command with its options in the sections that `rich_help_panel` names."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Those without a section come first, then section by section."""
        sections: dict[str, list[tuple[str, str]]] = {_REST: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "rich_help_panel", None) or _REST
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)
