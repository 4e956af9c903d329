"""Which job is on which GPU, in files as dcgm-exporter reads them (`--hpc-job-mapping-dir`).

A file for each GPU, named by its number, with the number of a job in each line. dcgm-exporter then writes a row for
each job, with the label `hpc_job`. A file is replaced as a whole, so that nobody reads half of one.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress


class JobFiles:
    """The files of one node, in a folder in which nobody else writes numbers."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._written: dict[str, str] = {}

    def write(self, jobs: Mapping[int, Collection[int]]) -> None:
        """The jobs of each GPU now. A GPU without any has no file; what a collector before us left is removed."""
        os.makedirs(self._folder, mode=0o755, exist_ok=True)
        wanted = {
            str(gpu): "".join([f"{job}\n" for job in sorted(set(on))]) for gpu, on in jobs.items() if on
        }
        there = [name for name in os.listdir(self._folder) if name.isdecimal()]
        for name in there:
            if name not in wanted:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))
        for name, text in wanted.items():
            if name not in there or self._written.get(name) != text:
                self._replace(name, text)
        self._written = wanted

    def _replace(self, name: str, text: str) -> None:
        # dcgm-exporter passes over names that are no numbers.
        path = os.path.join(self._folder, f".{name}.new")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o644)
        os.replace(path, os.path.join(self._folder, name))

    def close(self) -> None:
        """Leave no file that says of a GPU what nobody watches any more."""
        for name in self._written:
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, name))
        self._written = {}
