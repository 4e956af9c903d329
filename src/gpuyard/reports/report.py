"""A report, in one declaration: its endpoint, what builds its table, its columns, and the options of its command."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from gpuyard.reports.table import Row, Table
from gpuyard.tables import Column
from gpuyard.wire.endpoints import Endpoint

if TYPE_CHECKING:
    from gpuyard.control.access.rights import Sight
    from gpuyard.control.readings import Readings

R = TypeVar("R")
Build = Callable[["Readings", Mapping[str, Any], "Sight"], Table]
Asking = Callable[[Mapping[str, Any]], Row]
"""Asks a yard for the report with some values of its parameters; the reply."""


class Flag:
    """An option of a report's command; what is left empty comes from the parameter of that name."""

    __slots__ = ("default", "help", "names", "operand", "parameter")

    def __init__(
        self,
        parameter: str,
        names: tuple[str, ...] = (),
        help: str = "",
        default: Any = None,
        operand: bool = False,
    ) -> None:
        self.parameter = parameter
        self.names = names
        self.help = help
        self.default = default
        self.operand = operand
        """Whether it is typed without a name."""


class Report(Generic[R]):
    """Something to look at; its type names the form of its reply.

    Importing one must be quick, since its command starts with it: `build` imports what it needs.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        build: Build,
        columns: Sequence[Column] | Callable[[Sequence[Row]], Sequence[Column]],
        *,
        rows: str = "rows",
        help: str,
        more_help: str = "",
        flags: Sequence[Flag] | None = None,
        notes: Callable[[Row], Sequence[str]] | None = None,
        wakes: bool = True,
        whole: bool = False,
        page: Callable[[Asking, Mapping[str, Any]], str] | None = None,
        about: Callable[[str], Column] | None = None,
    ) -> None:
        """`rows` is the field of the reply that has them; `columns` may depend on them.

        A report by dimensions says in the field `by` of its reply which were asked for, and `about` makes the column
        of each; they stand before the others, and the fields of a row that may be missing are those dimensions.
        `flags` are the options of the command; left out: one for each parameter of the endpoint. `notes` are sentences
        that the command prints beside the table. Not `wakes`: it changes without an event of the yard; `--watch` asks
        again and again. `whole`: a document (json, yaml) is the whole reply and not its rows alone. `page` makes one
        HTML page of it, for `-o html`, and asks for what it shows.
        """
        self.name = name
        """Of its command."""
        self.endpoint = endpoint
        self.build = build
        self.rows = rows
        self.help = help
        """One sentence. `yard --help` has a shorter line for our own, which it tells without importing them."""
        self.more_help = more_help
        self._columns = columns
        self.flags = [Flag(str(each["name"])) for each in endpoint.parameters] if flags is None else flags
        self.wakes = wakes
        self.notes = notes or (lambda _reply: ())
        self.whole = whole
        self.page = page
        self.about = about

    def columns(self, reply: Row) -> Sequence[Column]:
        """The columns that people see of a reply."""
        columns = self._columns(reply[self.rows]) if callable(self._columns) else self._columns
        return columns if self.about is None else [*map(self.about, reply["by"]), *columns]

    def fields(self, reply: Row) -> tuple[str, ...]:
        """The fields of a row of a reply, in their order, whether there are any rows or not."""
        from gpuyard.wire.reply_schemas import find_form  # noqa: PLC0415 (only some forms of output ask for them)

        (row,) = get_args(get_type_hints(find_form(self.endpoint))[self.rows])
        if get_origin(row) is dict:
            # Rows whose names are those of another format: the reply has them.
            return tuple(reply["columns"])
        hints = get_type_hints(row)
        if self.about is None:
            return tuple(hints)
        about = [name if name in hints else "labels" for name in reply["by"]]
        return tuple(dict.fromkeys([*about, *[name for name in hints if name in row.__required_keys__]]))
