"""Memory, percent and money become texts in `gpuyard.quantities` alone; Slurm's commands have their own notation."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "gpuyard"
UNIT = re.compile(r" ?(GiB|TiB|%)(?!\w)")
THE_PLACE = "quantities.py"
OTHER_LANGUAGES = {
    "cli/slurm/commands/seff.py",
    "cli/slurm/commands/sreport.py",
    "pages/chart.py",  # of CSS
}
NO_QUANTITY = {
    "engines/slurm/site/site.py",  # a limit that stands in the code
    "intake/kubernetes/containers.py",  # a variable of a shell
    "sim/report/plots.py",  # ticks of an axis
}


def written_by_hand(source: str) -> list[int]:
    """Lines whose f-strings put a unit behind a figure, or a dollar before one."""
    found = []
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.JoinedStr):
            for one, other in pairwise(each.values):
                unit = isinstance(other, ast.Constant) and UNIT.match(str(other.value))
                figure = isinstance(one, ast.FormattedValue) and not isinstance(one.value, ast.Call)
                dollar = isinstance(one, ast.Constant) and str(one.value).endswith("$")
                if (unit and figure) or (dollar and isinstance(other, ast.FormattedValue)):
                    found.append(each.lineno)
    return found


def test_no_other_module_writes_memory_percent_or_money() -> None:
    beside = {
        module: lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := written_by_hand(path.read_text()))
        and (module := path.relative_to(PACKAGE).as_posix()) != THE_PLACE
    }
    allowed = OTHER_LANGUAGES | NO_QUANTITY

    assert {} == {module: lines for module, lines in beside.items() if module not in allowed}
    assert set() == allowed - set(beside), "these need no exception any more"


@pytest.mark.parametrize(
    "text", ["f'{mib / 1024:.1f} GiB'", "f'{part:.0f} %'", "f'{part}%'", "f'${cost:,.2f}'"]
)
def test_what_is_written_by_hand_is_seen(text: str) -> None:
    assert [1] == written_by_hand(text)


@pytest.mark.parametrize("text", ["f'{memory_size(mib)} %'", "f'{LIMIT} MiB'", "f'{day}%d'"])
def test_what_is_no_quantity_is_not(text: str) -> None:
    assert [] == written_by_hand(text)
