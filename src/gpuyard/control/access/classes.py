"""Who may use a class: every user, or the tenants and users that yard.yaml names.

Judged once, where a job is accepted: nothing changes the class of a job later, and jobs that were accepted keep theirs.
"""

from collections.abc import Iterator

from gpuyard.control.access.rights import below
from gpuyard.control.refusals import Forbidden
from gpuyard.core import State
from gpuyard.model import JobClass, Settings


def is_theirs(klass: JobClass, tenant: str, user: str) -> bool:
    """Whether a user's jobs for a tenant may be of a class."""
    if not klass.tenants and not klass.users:
        return True
    return user in klass.users or any([below(tenant, place) for place in klass.tenants])


def not_their_class(klass: JobClass, tenant: str, user: str, settings: Settings) -> Forbidden | None:
    """Why a job is not taken into a class. The refusal names the classes that this user may use, and no others."""
    if is_theirs(klass, tenant, user):
        return None
    open_to = [each.name for each in settings.classes if is_theirs(each, tenant, user)]
    return Forbidden(
        f"class {klass.name} is not for jobs of {user} for {tenant}: these may be {_either(open_to)}",
        f"Name one of them, or none for {settings.default_class}. "
        f"An administrator says whose a class is: `classes.{klass.name}.tenants` in yard.yaml.",
    )


def kept_classes(state: State, settings: Settings) -> Iterator[str]:
    """Live jobs that would not be accepted into their class again, in sentences: an apply takes it from none."""
    closed = {klass.name: klass for klass in settings.classes if klass.tenants or klass.users}
    if not closed:
        return
    counts: dict[tuple[str, str], int] = {}
    for record in state.jobs.values():
        spec = record.job.spec
        klass = closed.get(spec.klass)
        if klass is not None and not is_theirs(klass, spec.tenant, spec.user):
            counts[spec.klass, spec.tenant] = counts.get((spec.klass, spec.tenant), 0) + 1
    for (name, tenant), count in sorted(counts.items()):
        jobs, keep = ("1 live job", "keeps") if count == 1 else (f"{count:,} live jobs", "keep")
        yield f"{jobs} of {tenant} {keep} class {name}, which is no longer theirs: new ones are refused"


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
