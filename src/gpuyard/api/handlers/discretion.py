"""Hides the names of an owner's files in a job's reason from people without the right to read the job."""

import re
from typing import Any

from gpuyard.control.access.people import Person
from gpuyard.wire.actions import Action

_PATH = re.compile(r"(?<![^\s'\"(=:])/.*?(?=: |$)", re.DOTALL)
"""From a slash that begins a word up to the text about it. Paths may hold blanks: better to take too much."""


def without_paths(text: str) -> str:
    """A reason without the paths in it: `cannot enter folder (a path): No such file or directory`."""
    return _PATH.sub("(a path)", text) if "/" in text else text


def listed(person: Person, views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs as a person may see them in a list, where little is said of each."""
    for view in views:
        if "/" in view["reason"]:
            discreet(person, view)
    return views


def discreet(person: Person, view: dict[str, Any]) -> dict[str, Any]:
    """A job as a person may see it."""
    if person.may(Action.READ_JOB, view["tenant"], view["user"]):
        return view
    # What a job runs and where it writes is its owner's, like its output.
    view.pop("files", None)
    for each in (view, *view.get("jobs", ())):
        if each.get("reason"):
            each["reason"] = without_paths(each["reason"])
    for each in view.get("tries", ()):
        each["why"] = without_paths(each["why"])
    return view
