"""Help and complaints in words for people: `JOB` and `N`, not Python's types; `1 to 100`, not `1<=x<=100`."""

import re
from typing import Any

_TYPE = re.compile(r" ?<[^<>]*>(\.\.\.)?")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)<=x<=(-?\d+(?:\.\d+)?)")
_LEAST = re.compile(r"(?:; )?x>=?-?\d+(?:\.\d+)?")
_NOUNS = {"JOB": "job", "NODE": "node", "FILE": "file", "TENANT": "tenant", "TOKEN": "token", "VERSION": "version",
          "URL": "yard", "COMMAND": "command", "USER": "user"}  # fmt: skip


def reworded(command: Any) -> Any:
    """A Typer command, or a group of them, with help that names what people type."""
    for param in command.params:
        _reword(param)
    for below in (getattr(command, "commands", None) or {}).values():
        reworded(below)
    return command


def _reword(param: Any) -> None:
    theirs = param.get_help_record
    argument = param.param_type_name == "argument"

    def record(ctx: Any) -> tuple[str, str] | None:
        found = theirs(ctx)
        if found is None:
            return None
        name, text = found
        if argument or param.metavar is not None or param.is_flag:
            name = _TYPE.sub("", name)
        # Choices are words to type, and stand as they are.
        name = name.replace("<", "").replace(">", "")
        text = _LEAST.sub("", _RANGE.sub(r"\1 to \2", text))
        if argument:
            text = text.replace("; required]", "]").replace("[required]", "")
        return name, text.replace("[; ", "[").replace("[]", "").rstrip()

    param.get_help_record = record
    if argument:
        shown = usage_of(param.metavar or param.name.upper(), param.required, param.nargs != 1)
        param.get_usage_pieces = lambda _ctx: [shown]


def usage_of(metavar: str, required: bool, many: bool) -> str:
    """An argument as it appears in the usage line: `JOB`, `[FILE]`, `JOB...`, `[JOB...]`."""
    if " " in metavar:
        return metavar
    plain = metavar.strip("[]")
    plain = f"{plain.removesuffix('...')}..." if many else plain
    return plain if required else f"[{plain}]"


def missing(param: Any, command: str) -> tuple[str, str]:
    """What is missing, as a question, and the line to type."""
    metavar = param.metavar or param.name.upper()
    plain = metavar.strip("[].").removesuffix("...").rpartition("|")[2]
    argument = param.param_type_name == "argument"
    line = usage_of(metavar, True, param.nargs != 1) if argument else f"{param.opts[0]} {metavar}"
    noun = _NOUNS.get(plain)
    what = f"which {noun}?" if noun else f"{line} is missing"
    return f"{command}: {what}", f"{command} {line}; '{command} --help' lists what it takes."
