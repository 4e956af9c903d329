"""`yard down --jobs`: what it cancels, and in which order."""

from gpuyard.cli.commands.yard.down import JOBS_AT_ONCE, lots


def test_an_array_is_named_once_for_all_its_tasks_and_the_last_in_line_goes_first() -> None:
    running, array, last = ["3", "4"], [f"5_{index}" for index in range(JOBS_AT_ONCE)], ["2000"]

    assert [(["2000", "5"], JOBS_AT_ONCE + 1), (["4", "3"], 2)] == list(lots([*running, *array, *last]))
    assert [] == list(lots([]))


def test_many_single_jobs_go_in_several_requests() -> None:
    found = list(lots([str(number) for number in range(2 * JOBS_AT_ONCE + 1)]))

    assert [JOBS_AT_ONCE, JOBS_AT_ONCE, 1] == [len(names) for names, _jobs in found]
    assert 2 * JOBS_AT_ONCE + 1 == sum([jobs for _names, jobs in found])
