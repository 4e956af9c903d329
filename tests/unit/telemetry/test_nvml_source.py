"""NVML through a stand-in with the answers that a real H200 gave: whole, shared by MPS, cut by MIG; never set."""

from types import SimpleNamespace
from typing import Any

from gpuyard.telemetry.sources.nvml import NvmlSource
from rigs.nvml import GPM, Recorded, process


def test_a_whole_gpu_tells_everything_it_supports() -> None:
    nvml = Recorded(
        **GPM,
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=93, memory=11),
        nvmlDeviceGetPowerUsage=612_345,
        nvmlDeviceGetTemperature=51,
        nvmlDeviceGetClockInfo=1980,
        nvmlDeviceGetCurrentClocksEventReasons=4,
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetComputeRunningProcesses=[process(77, 4500)],
    )
    source = NvmlSource(nvml)
    first, second = source.look(0)[0], source.look(10_000)[0]

    assert 930 == first.values["busy"]
    assert 612.345 == first.values["power"]
    assert (46, 123_456, 10_240) == tuple(
        first.values[name] for name in ("memory_temperature", "energy", "pcie_sent")
    )
    assert "nvlink_sent" not in first.values, "a field that is refused leaves a hole"
    assert "sm_active" not in first.values, "one GPM sample tells nothing"
    assert (930, 136, 888, 105) == tuple(
        second.values[name] for name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
    )
    assert [(77, 4500, None)] == [(each.pid, each.memory_mib, each.accounted) for each in second.processes]
    assert ("NVIDIA H200", "580.159", "00000000:1B:00.0", False) == (
        second.model, second.driver, second.pci, second.mps,
    )  # fmt: skip
    source.close()
    assert 0 == nvml.samples


def test_accounts_are_read_where_they_are_on() -> None:
    nvml = Recorded(
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetAccountingMode=1,
        nvmlDeviceGetAccountingStats=SimpleNamespace(startTime=0, gpuUtilization=57),
        nvmlDeviceGetComputeRunningProcesses=[process(77, None)],
    )
    (look,) = NvmlSource(nvml).look(60_000)

    assert [(77, None, 570)] == [(each.pid, each.memory_mib, each.accounted) for each in look.processes]


def test_clients_of_mps_are_seen_with_their_memory() -> None:
    nvml = Recorded(
        nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetComputeRunningProcesses=[process(50, 30)],
        nvmlDeviceGetMPSComputeRunningProcesses=[process(77, 1000), process(78, 2000)],
    )
    (look,) = NvmlSource(nvml).look(0)

    assert look.mps
    assert [(50, 30), (77, 1000), (78, 2000)] == [(each.pid, each.memory_mib) for each in look.processes]


def test_a_cut_gpu_tells_slice_by_slice() -> None:
    class Cut(Recorded):
        def nvmlDeviceGetMigDeviceHandleByIndex(self, _handle: str, index: int) -> str:  # noqa: N802
            return ("MIG-a", "MIG-b")[index]

        def nvmlDeviceGetGpuInstanceId(self, device: str) -> int:  # noqa: N802
            return {"MIG-a": 5, "MIG-b": 9}[device]

    nvml = Cut(
        **GPM,
        nvmlDeviceGetMigMode=[1, 1],
        nvmlDeviceGetMaxMigDeviceCount=2,
        nvmlDeviceGetComputeInstanceId=0,
        nvmlDeviceGetComputeRunningProcesses=[process(77, 1000, 5), process(78, 2000, 9)],
    )
    source = NvmlSource(nvml)
    source.look(0)
    (look,) = source.look(10_000)

    assert {"MIG-a": 981, "MIG-b": 293} == look.slices_busy
    assert {77: "MIG-a", 78: "MIG-b"} == {each.pid: each.instance for each in look.processes}
    assert "busy" not in look.values
    source.close()
    assert 0 == nvml.samples


def test_a_gpu_that_is_lost_leaves_a_hole_and_comes_back() -> None:
    nvml = Recorded(nvmlDeviceGetMigMode=[0, 0])
    source = NvmlSource(nvml)
    assert 1 == len(source.look(0))
    nvml.gone = True
    assert [] == source.look(1)
    assert [] == source.look(2)
    nvml.gone = False
    assert 1 == len(source.look(3))


def test_gpus_stand_where_the_node_has_them() -> None:
    nvml = Recorded(nvmlDeviceGetMigMode=[0, 0])

    assert [3] == [each.gpu for each in NvmlSource(nvml, lambda: ["x", "y", "z", "GPU-1"]).look(0)]
    assert [] == NvmlSource(nvml, lambda: ["x"]).look(0)


def test_rates_of_links_are_what_counters_rose_between_two_looks() -> None:
    class Linked(Recorded):
        sent = 0

        def nvmlDeviceGetFieldValues(self, _handle: str, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
            return [
                SimpleNamespace(
                    nvmlReturn=0 if field == self.NVML_FI_DEV_PCIE_COUNT_TX_BYTES else 3,
                    valueType=3,
                    value=SimpleNamespace(ullVal=self.sent << 10),
                )
                for field, _scope in fields
            ]

    nvml = Linked(nvmlDeviceGetMigMode=[0, 0])
    source = NvmlSource(nvml)
    told = []
    for now_ms, nvml.sent in ((1_000, 5_000), (11_000, 15_000), (21_000, 100), (31_000, 100)):
        told.append(source.look(now_ms)[0].values.get("pcie_send_rate"))

    assert [None, 1024, None, 0] == told, "of a counter that began anew nobody knows how much it rose"


def test_the_last_error_of_a_gpu_is_told_until_the_driver_is_loaded_anew() -> None:
    errors = [31, 79]

    class Failing(Recorded):
        nvmlEventTypeXidCriticalError = 8  # noqa: N815

        def nvmlEventSetWait_v2(self, _events: Any, _ms: int) -> Any:  # noqa: N802
            if not errors:
                raise self.NVMLError("timeout")
            return SimpleNamespace(device="handle 0", eventData=errors.pop(0))

    nvml = Failing(
        nvmlDeviceGetMigMode=[0, 0], nvmlEventSetCreate="set", nvmlDeviceRegisterEvents=None, nvmlEventSetFree=None,
        nvmlDeviceGetEncoderUtilization=[12, 100], nvmlDeviceGetDecoderUtilization=[0, 100],
    )  # fmt: skip
    source = NvmlSource(nvml)
    (first,), (second,) = source.look(1_000), source.look(11_000)

    assert (79, 79) == (first.values["xid"], second.values["xid"])
    assert (120, 0) == (first.values["encoder_busy"], first.values["decoder_busy"])
    assert "xid" not in NvmlSource(Recorded(nvmlDeviceGetMigMode=[0, 0])).look(0)[0].values
