"""Configuration files of mig-parted: read as they are found, refused with the place, written so that they read back."""

import pytest
import yaml

from gpuyard.errors import BadInput
from gpuyard.intake.mig_parted import layout_for_node, layouts_text, list_layouts

TEXT = """
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  all-balanced:
    - device-filter: ["0x233510DE", "0x233B10DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.18gb": 2
        "2g.35gb": 1
        "3g.71gb": 1
    - device-filter: 0x233010DE
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
    - device-filter: "0xABCD10DE"
      devices: [99]
      mig-enabled: true
      mig-devices: {"1g.99gb": 7}
  mixed:
    - devices: [0]
      mig-enabled: false
      note: passed over
    - devices: [1, 2]
      mig-enabled: true
      mig-devices: {"1g.18gb+me": 1, "3g.71gb": 1}
"""


def test_entries_count_by_filter_and_device() -> None:
    assert ["all-disabled", "all-enabled", "all-balanced", "mixed"] == list_layouts(TEXT, "f")
    assert dict.fromkeys(range(2), "3g.71gb+2g.35gb+2x1g.18gb") == layout_for_node(
        TEXT, "f", "all-balanced", "H200", 2
    )
    assert {0: "7x1g.10gb"} == layout_for_node(TEXT, "f", "all-balanced", "H100", 1)
    assert {} == layout_for_node(TEXT, "f", "all-balanced", "B200", 8)
    assert {0: "whole", 1: "whole"} == layout_for_node(TEXT, "f", "all-disabled", "T4", 2)
    mixed = layout_for_node(TEXT, "f", "mixed", "H200", 4)
    assert {0: "whole", 1: "3g.71gb+1g.18gb+me", 2: "3g.71gb+1g.18gb+me"} == mixed


def test_a_config_map_is_taken_off() -> None:
    wrapped = yaml.safe_dump({"kind": "ConfigMap", "data": {"config.yaml": TEXT}})
    assert list_layouts(TEXT, "f") == list_layouts(wrapped, "f")


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (TEXT, "all-balance", "did you mean 'all-balanced'"),
        (TEXT, "all-enabled", "switches MIG on and makes no slice"),
        (TEXT, "mixed", "there is no GPU 2 on this node, which has 2"),
        ("a: [", "x", "f"),
        ("a: 1", "x", "no 'mig-configs'"),
        ("version: v2\nmig-configs: {x: []}", "x", "reads v1"),
        ("mig-configs: {x: 1}", "x", "must be a list"),
        ("mig-configs: {x: [1]}", "x", "must hold 'devices'"),
        ("mig-configs: {x: [{devices: some, mig-enabled: false}]}", "x", "'devices' is 'all' or a list"),
        ("mig-configs: {x: [{devices: all, mig-enabled: maybe}]}", "x", "must be true or false"),
        ("mig-configs: {x: [{devices: all, device-filter: H200, mig-enabled: false}]}", "x", "no PCI device"),
        (
            "mig-configs: {x: [{devices: all, mig-enabled: true, mig-devices: {1c.2g.35gb: 1}}]}",
            "x",
            "'1c.2g.35gb' is not a slice that the yard makes",
        ),
        (
            "mig-configs: {x: [{devices: all, mig-enabled: true, mig-devices: {1g.18gb: -1}}]}",
            "x",
            "is not a number of slices",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        layout_for_node(text, "f", name, "H200", 2)


def test_what_is_written_is_read_back() -> None:
    by_gpu = {0: ["1g.18gb"] * 7, 1: [], 2: ["1g.18gb"] * 7, 3: ["2g.35gb", "3g.71gb"]}
    text = layouts_text({"gpu-1": by_gpu, "gpu-2": {0: []}})
    found = layout_for_node(text, "f", "gpu-1", "H200", 4)
    assert {0: "7x1g.18gb", 1: "whole", 2: "7x1g.18gb", 3: "3g.71gb+2g.35gb"} == found
    assert {0: "whole"} == layout_for_node(text, "f", "gpu-2", "H200", 1)
