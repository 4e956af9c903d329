"""What idle GPUs and cores are worth: tables by kind of node, from prices, cores and names."""

from hypothesis import given, settings

from gpuyard.packing.prices import GPU
from gpuyard.packing.tasks import NodeShape, Task
from gpuyard.packing.values import CORE_BITS, PREMIUM, Values, Weighing, compute_values

from .boards import scenes

BIG = NodeShape("a", 8, 96_000, 65_536)


def full(found: Values, kind: int, row: int = 0) -> int:
    """What a wholly idle GPU is worth, if a core costs what this row says."""
    return found.tables[kind][(row + 1) * found.columns - 1]


def of(found: Values, kind: int, cpu_milli: int, left: list[int]) -> int:
    """The value of a node, by the definition."""
    table = found.tables[kind]
    return min(
        (cost * cpu_milli >> CORE_BITS)
        + sum(table[row * found.columns + milli // found.unit] for milli in left)
        for row, cost in enumerate(found.core_costs)
    )


def test_idle_gpus_without_cores_are_worth_little() -> None:
    found = compute_values([(Task(10_000, 0, 1, 1000), 1)], [(BIG, 4)])

    plenty, short, none = (of(found, 0, cores * 1000, [1000] * 8) for cores in (200, 40, 0))
    assert GPU * 8 * 95 // 100 < plenty <= GPU * 8 * 105 // 100
    assert none < GPU // 100 < short < plenty


def test_idle_cores_count_less_the_more_of_them_there_are() -> None:
    """A GPU wants 10 cores. If it has 12, 16 or 40, they count 100/112, 100/150 and half."""
    expected = [(Task(10_000, 0, 1, 1000), 1)]
    kinds = [[(NodeShape("a", 1, cores * 1000, 1), 3)] for cores in (12, 16, 40)]
    whole = compute_values(expected, kinds[0], Weighing(headroom_max=100)).core_costs[-1]

    found = [compute_values(expected, each).core_costs[-1] for each in kinds]
    assert [whole * 100 // 112, whole * 100 // 150, whole // 2] == found


def test_tasks_without_cores_make_cores_worthless() -> None:
    found = compute_values([(Task(0, 0, 1, 1000), 1)], [(BIG, 4)])

    assert (0,) == found.core_costs
    assert of(found, 0, 0, [1000]) == of(found, 0, 10**9, [1000]) > GPU // 2


def test_a_model_that_is_asked_for_by_name_is_worth_more_up_to_a_limit() -> None:
    any_model, by_name = Task(1000, 0, 1, 1000), Task(1000, 0, 1, 1000, ("b",))
    other = BIG._replace(model="b")
    extra = []
    for weight in (0, 1, 2, 50):
        found = compute_values([(any_model, 8), (by_name, weight)], [(BIG, 1), (other, 1)])
        extra.append(full(found, 1) - full(found, 0))

    assert 0 == extra[0] < extra[1] < extra[2] < extra[3]
    assert PREMIUM <= extra[3]


def test_a_model_asked_for_beyond_what_it_has_does_not_hide_what_others_are_worth() -> None:
    """Forty tasks want the one GPU of `dear`. It alone would limit the program, and all other prices would be 0."""
    dear, plain = NodeShape("dear", 1, 96_000, 65_536), NodeShape("plain", 2, 96_000, 65_536)
    expected = [
        (Task(1000, 0, 1, 300), 10),
        (Task(1000, 0, 1, 700), 10),
        (Task(1000, 0, 1, 1000, ("dear",)), 40),
    ]
    kinds = [(dear, 1), (plain, 4)]

    assert full(compute_values(expected, kinds), 1) > GPU // 2
    assert full(compute_values(expected, kinds, Weighing(named_max=10**9)), 1) < GPU // 100


@settings(max_examples=60)
@given(scene=scenes())
def test_more_idle_is_never_worth_less(scene) -> None:
    nodes, _tasks, expected, _order = scene
    kinds = sorted(set(nodes))
    found = compute_values(expected, [(kind, nodes.count(kind)) for kind in kinds])

    assert all(cost >= 0 for cost in found.core_costs)
    for table in found.tables:
        assert len(found.core_costs) * found.columns == len(table)
        for row in range(len(found.core_costs)):
            line = table[row * found.columns : (row + 1) * found.columns]
            assert 0 == line[0]
            assert list(line) == sorted(line)


def test_a_kind_without_nodes_changes_nothing() -> None:
    expected = [(Task(1000, 0, 1, 500), 3), (Task(1000, 0, 1, 1000, ("gone",)), 2)]
    with_it = compute_values(
        expected, [(BIG, 3), (NodeShape("gone", 4, 1, 1), 0), (NodeShape("gone", 4, 9_000, 9), 0)]
    )

    assert compute_values(expected, [(BIG, 3)]).tables[0] == with_it.tables[0]


def test_nothing_expected_or_no_fleet_is_worth_nothing() -> None:
    bare = NodeShape("", 0, 64_000, 1024)

    assert (0, 0) == compute_values([], [(BIG, 2)]).tables[0]
    assert () == compute_values([(Task(1, 0, 1, 1000), 1)], []).tables
    assert 0 == full(compute_values([(Task(1, 0, 0, 0), 1)], [(bare, 1)]), 0)
