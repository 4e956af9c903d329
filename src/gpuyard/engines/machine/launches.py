"""Launches on this machine: the user that a job runs as, and what is wrong with a launch that no engine could run."""

import os
import pwd
import re
from dataclasses import dataclass
from typing import Any

from gpuyard.engines.contract import ImageUse, Launch, Recipe


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """The user a job runs as."""

    uid: int
    gid: int
    user: str
    home: str
    shell: str


def find_account(uid: int, gid: int, user: str) -> UnixAccount:
    """The user a job runs as. A uid without a name on this machine has no home."""
    if uid == 0 and not user:
        uid, gid = os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return UnixAccount(uid, gid, user or str(uid), "/", "/bin/sh")
    return UnixAccount(uid, gid, entry.pw_name, entry.pw_dir or "/", entry.pw_shell or "/bin/sh")


def user_name(uid: int | None) -> str:
    """A user's name for people."""
    if uid is None:
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


CHECKPOINT = "checkpoint"
"""The file by which a job says that it has saved its work, where it names none."""
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,199}")
_SIGNALS_MAX = 64


def find_key_flaw(key: str) -> str:
    """What is wrong with a key; empty: nothing. A key becomes the name of a folder."""
    return "" if _KEY.fullmatch(key) else f"{key[:50]!r} is not a key: letters, digits and dashes"


def read_image_use(facts: dict[str, Any], started_ms: int) -> ImageUse:
    """What a task has noted of its containers, with times since the start of the attempt."""
    start, line = (
        max(0, facts[name] - started_ms) if name in facts else None for name in ("start_ms", "line_ms")
    )
    return ImageUse(facts.get("image", ""), facts.get("digest", ""), facts.get("pull_ms"), start, line)


def plain_containers(recipe: Recipe) -> list[dict[str, Any]]:
    """The containers of a recipe, as the nodes read them (`engines/node/containers/image.py`)."""
    return [
        {
            "image": each.image,
            "name": each.name,
            "entrypoint": list(each.entrypoint),
            "argv": list(each.argv),
            "env": dict(each.env),
            "workdir": each.workdir,
            "volumes": list(each.volumes),
            "init": each.init,
            "pull": each.pull,
        }
        for each in recipe.containers
    ]


def flaw_of_recipe(launch: Launch) -> str:
    """Why this launch could run nowhere; empty: it could."""
    recipe = launch.recipe
    if recipe.script and not recipe.script.startswith("#!"):
        return "the script does not begin with #!"
    if not recipe.script and not recipe.containers and (not recipe.argv or not recipe.argv[0]):
        return "there is nothing to run: no argv and no script"
    if not 0 <= recipe.warn_signal <= _SIGNALS_MAX:
        return f"there is no signal {recipe.warn_signal}"
    if min(launch.limit_ms, launch.grace_ms, recipe.warn_ms, recipe.uid, recipe.gid) < 0:
        return "times and ids cannot be negative"
    if recipe.cwd and not recipe.cwd.startswith("/"):
        return f"the folder {recipe.cwd!r} is not an absolute path"
    return _flaw_of_texts(launch)


def _flaw_of_texts(launch: Launch) -> str:
    recipe = launch.recipe
    texts = {
        "argv": recipe.argv,
        "the name": (launch.name, launch.label, recipe.user),
        "a path": (recipe.cwd, recipe.stdout, recipe.stderr),
        "the environment": (*recipe.env.keys(), *recipe.env.values()),
        "the script": (recipe.script,),
    }
    for what, strings in texts.items():
        for text in strings:
            if "\0" in text and what != "the script":
                return f"{what} holds a NUL character"
            try:
                text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                return f"{what} holds a character that cannot be passed on"
    bad = next((name for name in recipe.env if not name or "=" in name), None)
    return "" if bad is None else f"{bad!r} is not a name of an environment variable"
