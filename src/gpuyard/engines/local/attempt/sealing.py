"""A supervisor is whole before it enters a job's view of the file system: from then on it loads no code.

Behind a fence a path may lead to files of the job's own, and a supervisor of root that imported one of them would run
it as root. An upgrade takes the files away under the jobs that run. So the process that forks supervisors loads all
that any of them will ever need, also what Python and the C library would load when it is first used, and then gives up
the means to load more. What is missing after that is an error where it is missed, and no file is looked for.
"""

import array
import codecs
import os
import pwd
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from gpuyard.engines.node.containers import image, podman, runtimes
from gpuyard.engines.node.visits import copying, inside, keeper, visitors
from gpuyard.errors import printable_text

NEEDED = (array, copying, image, inside, keeper, podman, runtimes, subprocess, visitors)
"""What is imported where it is first needed: by visits, by jobs in images, and by Python itself to send descriptors."""
_CODECS = ("ascii", "latin-1", "utf-8")
LOG_BYTES_MAX = 1 << 20
"""Of the log of supervisors. One that has grown to this is put aside when the next spawner is started."""
_ERROR_CHARS_MAX = 300
_PLACES_MAX = 30
_WITHOUT_FILES = ("BuiltinImporter", "FrozenImporter")
"""These find only what is in the program of Python itself."""


def report_errors() -> None:
    """Have every error written down in one form, whenever it comes."""
    # To show a line of the source its file would be opened.
    sys.excepthook = report
    threading.excepthook = lambda told: report(told.exc_type, told.exc_value, told.exc_traceback)
    sys.unraisablehook = lambda told: report(told.exc_type, told.exc_value, told.exc_traceback)


def seal() -> None:
    """Load what is loaded on first use; then nothing more, in this process and in all that it forks."""
    for name in _CODECS:
        codecs.lookup(name)
    # The C library has its sources of users in files of their own.
    with suppress(KeyError):
        os.getgrouplist(pwd.getpwuid(os.geteuid()).pw_name, os.getegid())
    warnings.simplefilter("ignore")
    sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__name__", "") in _WITHOUT_FILES]
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()


def report(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Write down an error and where it was, without a look at any file."""
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    if len(places) > _PLACES_MAX:
        places = [*places[: _PLACES_MAX // 2], "…", *places[-_PLACES_MAX // 2 :]]
    note(f"{kind.__name__}: {error}", places)


def note(what: str, places: Sequence[str] = ()) -> None:
    """Write down what went wrong, and where."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"{when} ERROR supervisor {os.getpid()}: {printable_text(what, _ERROR_CHARS_MAX)}"
    text = "\n".join([line, *[f"    | {printable_text(place, _ERROR_CHARS_MAX)}" for place in places], ""])
    with suppress(OSError):
        # A job that makes its supervisor fail over and over fills no disk.
        if os.fstat(2).st_size < LOG_BYTES_MAX:
            os.write(2, text.encode("utf-8", "backslashreplace"))
