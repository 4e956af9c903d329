"""Results of simulations in a folder, so that what was simulated once is not simulated again.

A file is one result, named by a fingerprint of all that it follows from: the jobs, the fleet, the settings, what goes
wrong and the policy, and our own code that decides. Where any of them differs, it is another question, and nothing is
found. Parts of other packages are known by their names alone.
"""

import hashlib
import json
import os
from array import array
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import gpuyard
from gpuyard.errors import BadInput
from gpuyard.model import PolicySpec
from gpuyard.model.serialise import to_plain
from gpuyard.sim.result import Result, Samples
from gpuyard.sim.study import Study

FORM = 1
"""Counts up when files are written differently."""

_CODE = ("core", "model", "packing", "policies", "sim")
"""Packages of which the result of a simulation is made."""


class KeptResults:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._of_study: dict[Study, str] = {}
        """Its part of the fingerprint, which reads the whole trace."""

    def find(self, study: Study, spec: PolicySpec) -> Result | None:
        """The result of a policy on a study; None: it is not kept."""
        path = self._path(study, spec)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error.strerror}", "Choose another --keep.") from None
        try:
            return _read(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise BadInput(f"{path}: is no kept result", "Remove it, or choose another --keep.") from None

    def keep(self, study: Study, spec: PolicySpec, result: Result) -> None:
        """Write a result: a file is there whole, or not at all."""
        path = self._path(study, spec)
        # Two comparisons may keep the same result at the same time.
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(_write(result)), encoding="utf-8")
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise BadInput(f"{path}: cannot be written: {error.strerror}", "Choose another --keep.") from None

    def _path(self, study: Study, spec: PolicySpec) -> Path:
        if study not in self._of_study:
            self._of_study[study] = _fingerprint(study)
        found = _hash(self._of_study[study].encode(), json.dumps(to_plain(spec)).encode())
        return (
            self.folder / f"{''.join([c for c in spec.name if c.isalnum() or c in '-_'])}-{found[:32]}.json"
        )


def _fingerprint(study: Study) -> str:
    trace = study.trace
    lacks = {cluster: sorted([each.value for each in missing]) for cluster, missing in study.lacks.items()}
    plain = [
        FORM,
        gpuyard.__version__,
        _code(),
        to_plain(trace.specs),
        to_plain(study.pools),
        to_plain(study.settings),
        [list(each) for each in map(_fields_of, study.node_changes)],
        lacks,
    ]
    columns = (trace.spec, trace.submit_ms, trace.run_ms, trace.limit_ms, trace.deadline_ms)
    return _hash(json.dumps(plain, sort_keys=True).encode(), *[column.tobytes() for column in columns])


def _fields_of(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, each) for each in value.__slots__])


@cache
def _code() -> str:
    """Our own code that decides: between two versions it may change under people who change it."""
    root = Path(gpuyard.__file__).parent
    paths = sorted([path for package in _CODE for path in (root / package).rglob("*.py")])
    return _hash(*[path.read_bytes() for path in paths])


def _hash(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)} ".encode())
        found.update(part)
    return found.hexdigest()


# ----------------------------------------------------------------------
# A result as JSON


def _write(value: Any) -> Any:
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, Result | Samples):
        return {field.name: _write(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list):
        return [_write(each) for each in value]
    return value


def _read(plain: dict[str, Any]) -> Result:
    samples = plain.pop("samples")
    result = _filled(Result("", 0), plain)
    result.redone_milli_ms = {int(job_id): milli_ms for job_id, milli_ms in result.redone_milli_ms.items()}
    result.samples = _filled(Samples(), samples)
    for name in ("tenant_used_milli", "tenant_entitled_milli"):
        setattr(result.samples, name, [array("q", column) for column in samples[name]])
    return result


def _filled(made: Any, plain: dict[str, Any]) -> Any:
    """An empty value with its fields as they were written, columns with the type of number that they had."""
    for field in fields(made):
        if field.name == "samples":
            continue
        empty, value = getattr(made, field.name), plain[field.name]
        setattr(made, field.name, array(empty.typecode, value) if isinstance(empty, array) else value)
    return made
