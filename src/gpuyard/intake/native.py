"""Jobs in native YAML, read and written. A job that is written is read back as the same job."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from gpuyard.errors import quote, suggest
from gpuyard.intake.documents import Document, parse_documents
from gpuyard.intake.native_fields import FIELDS, Wrong
from gpuyard.intake.values import Form, Intake
from gpuyard.keys.problems import FOUND_MAX, ConfigError, Problem


def read_native(text: str, file: str) -> list[Intake]:
    """Every job of a file; `ConfigError` with every problem and its place otherwise."""
    problems: list[Problem] = []
    found = []
    for each in parse_documents(text, file):
        problems += each.problems
        job = _job(each, problems)
        found.append(Intake(form=Form.NATIVE, file=file, line=each.root.place.line, job=job))
        if len(problems) >= FOUND_MAX:
            break
    if problems:
        raise ConfigError(file, problems)
    return found


def _job(document: Document, problems: list[Problem]) -> dict[str, Any]:
    job: dict[str, Any] = {}
    for key, (place, node) in document.root.entries.items():
        if key not in FIELDS:
            problems.append(Problem(place, f"unknown field {quote(key)}; {suggest(key, FIELDS, 'fields')}"))
            continue
        try:
            job[key] = FIELDS[key].read(node)
        except Wrong as wrong:
            problems.append(Problem(wrong.place, f"{quote(key)} {wrong}"))
    if not document.root.entries.keys() & {"command", "script", "image"}:
        problems.append(
            Problem(
                document.root.place, "there is nothing to run: give a 'command', a 'script' or an 'image'"
            )
        )
    return job


_ESCAPED = re.compile(
    "[^\\t\\n\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)
"""Characters that a file may hold only as escapes: control characters, and line breaks that editors do not count."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, and lists indented below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip("\n") else None
    if _ESCAPED.search(text):
        # PyYAML would write these characters as they are; in double quotes it escapes them.
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write_native(jobs: Iterable[dict[str, Any]]) -> str:
    """Jobs as YAML, one document each."""
    return "---\n".join([_written(job) for job in jobs])


def _written(job: dict[str, Any]) -> str:
    known = {name: job[name] for name in FIELDS if name in job}
    unknown = sorted(job.keys() - known.keys())
    assert not unknown, f"fields without a place in the table: {unknown}"
    return yaml.dump(known, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
