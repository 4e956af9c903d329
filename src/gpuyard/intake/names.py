"""Names from elsewhere in a form that the yard accepts: readable, but safe in a path, a shell and a terminal."""

import re

from gpuyard.wire.job_fields import NAME_MAX

_FORBIDDEN = re.compile(r"[^\w .:+=@,-]")
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def mend_job_name(text: str) -> str:
    """The name of a job, with forbidden characters replaced."""
    made = _FORBIDDEN.sub("-", text).lstrip("_ .:+=@,-")[:NAME_MAX]
    return made or "job"


def is_segment(text: str) -> bool:
    """Whether it can be the name of a class, a pool or a part of a tenant's path."""
    return bool(_SEGMENT.fullmatch(text))


def is_tenant(text: str) -> bool:
    """Whether it can be a tenant: a path such as `research/ana`."""
    return all(is_segment(part) for part in text.split("/"))
