"""The time of the log, where the machine's clock is set."""

from gpuyard.control.clock import Steady


class Clocks:
    """A clock that people set, and one that nobody can."""

    wall_ms = 1_000_000
    elapsed_ms = 77

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_ms += ms


def test_time_goes_on_where_the_clock_was_set_forward_and_back() -> None:
    clocks = Clocks()
    now_ms = Steady(lambda: clocks.wall_ms, 0, lambda: clocks.elapsed_ms)
    assert 1_000_000 == now_ms()
    clocks.wall_ms += 86_400_000
    assert 87_400_000 == now_ms()
    clocks.wall_ms -= 86_400_000
    assert 87_400_000 == now_ms()
    clocks.pass_ms(5_000)
    # A job that ran for five seconds has run for five seconds.
    assert 87_405_000 == now_ms()


def test_after_a_restart_time_goes_on_from_the_last_event() -> None:
    clocks = Clocks()
    now_ms = Steady(lambda: clocks.wall_ms, 5_000_000, lambda: clocks.elapsed_ms)
    clocks.pass_ms(250)
    assert 5_000_250 == now_ms()
    clocks.wall_ms = 6_000_000
    assert 6_000_000 == now_ms()
