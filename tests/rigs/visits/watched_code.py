"""A copy of what supervisors are started from, in which a hook of Python's own watches what they load.

Behind a job's fence every import of a module that is not loaded, and every file that is opened of the copy or of Python
itself, is written down and refused. Nothing can take the hook away again: neither our code nor a job.
"""

import os
import shutil
import sys
from pathlib import Path

import gpuyard
from gpuyard.engines.local.own_code import OwnCode

_HOOK = """
import os, sys
_outside = os.readlink("/proc/self/ns/mnt")
_told = os.open({told!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_inside = set()

def _watch(event, args):
    if event not in ("import", "open"):
        return
    try:
        if os.readlink("/proc/self/ns/mnt") == _outside:
            return
    except OSError:
        # A process on its way into a container has no number there.
        pass
    if os.getpid() not in _inside:
        _inside.add(os.getpid())
        os.write(_told, b"inside\\n")
    what = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else ""
    if event != "open" or what.startswith({ours!r}):
        os.write(_told, (event + " " + what + "\\n").encode())
        raise RuntimeError(event + " " + what)

sys.addaudithook(_watch)
"""


class WatchedCode:
    """The copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder.parent / f"{folder.name}.told"
        source = Path(gpuyard.__file__).parent
        for path in [
            source / "__init__.py",
            source / "errors.py",
            *sorted((source / "engines").rglob("*.py")),
        ]:
            target = folder / "gpuyard" / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        ours = (f"{folder}/", f"{sys.prefix}/", f"{sys.base_prefix}/lib/python")
        with (folder / "gpuyard" / "__init__.py").open("a", encoding="utf-8") as file:
            file.write(_HOOK.format(told=str(self.told), ours=ours))

    def append(self, module: str, text: str) -> None:
        """Put something behind the text of a module."""
        with (self.folder / "gpuyard" / module).open("a", encoding="utf-8") as file:
            file.write(text)

    def code(self, *, shown: bool = True) -> OwnCode:
        """The copy as the code of a yard; one that jobs are not shown leaves them its place."""
        return OwnCode(str(self.folder), (str(self.folder),) if shown else ())

    def modules(self) -> list[str]:
        """The files of all its modules."""
        return sorted([str(path) for path in self.folder.rglob("*.py")])

    def seen(self) -> set[str]:
        """What was written down behind fences; `inside`: the hook was there."""
        return set(self.told.read_text(encoding="utf-8").splitlines()) if self.told.exists() else set()

    def remove(self) -> None:
        shutil.rmtree(self.folder)
        if self.told.exists():
            os.unlink(self.told)
