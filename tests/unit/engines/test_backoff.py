"""Nodes that do not start what they are given."""

from gpuyard.engines.machine.backoff import NodeBackoff


class Clock:
    """Seconds since the start, and milliseconds on the wall."""

    def __init__(self) -> None:
        self.s = 0.0

    def made(self, free: int = 0) -> NodeBackoff:
        return NodeBackoff(30, 100, lambda: int(self.s * 1000), free=free, clock_s=lambda: self.s)


def test_a_node_is_left_out_longer_each_time_and_taken_back_when_something_runs() -> None:
    clock = Clock()
    aside = clock.made()
    aside.put(["n1"], "Resources")
    aside.put(["n1"], "again")
    assert ("left out for a while: Resources", "") == (aside.why("n1"), aside.why("n2"))
    for pause_s in (30, 60, 100, 100):
        clock.s += pause_s - 1
        assert "" != aside.why("n1")
        clock.s += 1
        assert "" == aside.why("n1")
        aside.put(["n1"], "Resources")
    assert "" != aside.why("n1")
    aside.clear(["n1"], int(clock.s * 1000) + 1)
    assert ("", False) == (aside.why("n1"), bool(aside))


def test_a_few_failures_in_a_row_may_be_free() -> None:
    clock = Clock()
    aside = clock.made(free=2)
    for _ in range(2):
        aside.put(["n1"], "no limits")
        assert ("", True) == (aside.why("n1"), bool(aside))
    aside.put(["n1"], "no limits")
    assert "left out for a while: no limits" == aside.why("n1")


def test_what_ran_there_before_it_failed_does_not_bring_a_node_back() -> None:
    clock = Clock()
    aside = clock.made()
    clock.s = 50
    aside.put(["n1"], "no limits")
    aside.clear(["n1"], 49_000)
    assert "" != aside.why("n1")
    aside.clear(["n1"], 51_000)
    assert "" == aside.why("n1")
