"""Small fleets and tasks for tests of packing."""

from hypothesis import strategies as st

from gpuyard.packing.tasks import NodeShape, Task

NODES = st.builds(
    NodeShape,
    model=st.sampled_from(["a", "b"]),
    gpus=st.sampled_from([0, 1, 2, 4, 8]),
    cpu_milli=st.sampled_from([4_000, 8_000, 32_000, 96_000]),
    memory_mib=st.sampled_from([8_192, 65_536]),
)

MODELS = st.sampled_from([(), (), (), ("a",), ("b",), ("a", "b")])

TASKS = st.one_of(
    st.builds(
        Task,
        cpu_milli=st.integers(0, 12_000),
        memory_mib=st.sampled_from([0, 1_000, 9_000]),
        gpus=st.just(1),
        gpu_milli=st.sampled_from([50, 160, 190, 333, 470, 500, 810, 1000]),
        models=MODELS,
    ),
    st.builds(
        Task,
        cpu_milli=st.integers(0, 12_000),
        memory_mib=st.just(500),
        gpus=st.sampled_from([2, 4, 8]),
        gpu_milli=st.just(1000),
        models=MODELS,
    ),
    st.builds(
        Task, cpu_milli=st.integers(1, 9_000), memory_mib=st.just(100), gpus=st.just(0), gpu_milli=st.just(0)
    ),
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[NodeShape], list[Task], list[tuple[Task, int]], list[int]]:
    """Nodes, the tasks that may arrive, what is expected, and an order of arrivals."""
    nodes = draw(st.lists(NODES, min_size=1, max_size=90))
    tasks = sorted(draw(st.sets(TASKS, min_size=1, max_size=8)))
    weights = draw(st.lists(st.integers(1, 20), min_size=len(tasks), max_size=len(tasks)))
    expected = [(task._replace(memory_mib=0), n) for task, n in zip(tasks, weights, strict=True)]
    order = draw(st.lists(st.integers(0, len(tasks) - 1), min_size=1, max_size=120))
    return nodes, tasks, expected[: max(1, len(tasks) - draw(st.integers(0, 2)))], order
