"""The table of signals: names once, bounds, and what DCGM and Prometheus call them."""

import re

from gpuyard.telemetry.signals import SIGNALS, Of, attempt_subject, gpu_subject, signal_of


def test_no_two_signals_share_a_name_at_dcgm_or_prometheus() -> None:
    for names in (
        [each.prometheus for each in SIGNALS.values()],
        [each.dcgm for each in SIGNALS.values() if each.dcgm],
    ):
        assert len(names) == len(set(names))


def test_names_are_what_prometheus_takes() -> None:
    for signal in SIGNALS.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", signal.prometheus)
        assert not signal.prometheus.endswith("_total"), (
            "the ending of counters is added where they are written"
        )
        assert re.fullmatch(r"(DCGM_FI_(DEV|PROF)_[A-Z0-9_]+)?", signal.dcgm)
        assert signal.help.endswith(".")


def test_only_gpus_have_names_of_dcgm() -> None:
    assert {Of.GPU} == {signal.of for signal in SIGNALS.values() if signal.dcgm}


def test_a_series_names_its_signal() -> None:
    assert SIGNALS[Of.GPU, "busy"] is signal_of(f"{gpu_subject(3)}/busy")
    assert SIGNALS[Of.NODE, "cpu"] is signal_of("node/cpu")
    assert SIGNALS[Of.ATTEMPT, "cpu"] is signal_of(f"{attempt_subject('y-1-1')}/cpu")
    assert None is signal_of("gpu/3/fame")
    assert None is signal_of("busy")


def test_an_estimate_is_a_signal_of_its_own() -> None:
    assert SIGNALS[Of.ATTEMPT, "gpu_busy_estimated"].estimated
    assert not SIGNALS[Of.ATTEMPT, "gpu_busy"].estimated
