"""One real GPU cut from one MIG layout to the next: by `yard mig apply`, and by NVIDIA's own tool.

    python benchmarks/bench_layouts.py [--out DIR] [--write] [--rehearse]

Needs an NVIDIA GPU with MIG that is switched off, root, and GPU_SETTINGS=change in the environment: the owner's word
that settings may be changed. Both make the same slices in the same places, one after the other. Whatever happens, MIG
is off again at the end. `--rehearse` does it here and now with emulated GPUs; its figures mean nothing.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_sharing import DOCUMENT, asked_for_settings, keep, yard_of
from figures import publish, table

from gpuyard.api.client import Client
from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.model.mig import MigGeometry
from hardware.conftest import Hardware


def layouts(geometry: MigGeometry) -> list[str]:
    """From one extreme to the other and back."""
    plain = [profile for profile in geometry.profiles if "+" not in profile.name]
    small, large = plain[0], plain[-1]
    half = next(profile for profile in reversed(plain) if profile.count_max == 2)
    third = [profile for profile in plain if profile.count_max == 3]
    seven = f"{small.count_max}x{small.name}"
    # An A30 has four slices, of which none comes in threes.
    mixed = [f"{half.name},{third[0].name},{small.name}", seven] if third else []
    return [seven, f"2x{half.name}", large.name, seven, *mixed, "whole"]


def recuts(hardware: Hardware, *, rehearse: bool) -> list[dict[str, Any]]:
    """The GPU cut to one layout after another by `yard mig apply`: by the engine's stopwatch, and for who waits."""
    found: list[dict[str, Any]] = []
    cut: list[list[PlacedSlice]] = []
    before = "whole"
    for layout in layouts(hardware.geometry):
        began = time.monotonic()
        hardware("mig", "apply", layout, "--gpu", 0)
        waited_s = time.monotonic() - began
        with Client(data=hardware.data) as yard:
            (node,) = yard.mig()["nodes"]
        (pin,) = [pin for pin in node["pins"] if pin["gpu"] == 0]
        found.append(
            {
                "change": f"{before} to {layout}",
                "engine s": pin["took_ms"] / 1000,
                "command s": round(waited_s, 2),
            }
        )
        before = layout
        cut.append([PlacedSlice(profile, start) for gpu, profile, start, *_job in node["slices"] if gpu == 0])
    hardware("mig", "release")
    hardware("down", "--jobs")
    hardware.put_back()
    if not rehearse:
        for row, places in zip(found, cut, strict=True):
            row["nvidia-smi s"] = by_nvidia_smi(hardware.geometry, places)
            print(row, file=sys.stderr, flush=True)
    return found


def by_nvidia_smi(geometry: MigGeometry, places: list[PlacedSlice]) -> float:
    """The same slices made by NVIDIA's own tool, in seconds."""
    asked = ",".join(
        [f"{geometry.profile(name).number}:{start}" for name, start in places if geometry.profile(name)]
    )
    began = time.monotonic()
    for words in (["-mig", "1"], ["mig", "-dci"], ["mig", "-dgi"], ["mig", "-cgi", asked, "-C"]):
        if asked or words[0] == "mig":
            # What is not there cannot be destroyed, and that is no failure.
            subprocess.run(["nvidia-smi", *words], capture_output=True, check=words[1] == "-cgi")
    if not asked:
        subprocess.run(["nvidia-smi", "-mig", "0"], capture_output=True, check=True)
    return round(time.monotonic() - began, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a folder for layouts.json and layouts.md")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/hardware.md")
    parser.add_argument("--rehearse", action="store_true", help="emulated GPUs")
    options = parser.parse_args()
    if options.rehearse and options.write:
        parser.error("a rehearsal has no figures to write")
    if not options.rehearse:
        asked_for_settings("it")
    with yard_of(rehearse=options.rehearse) as hardware:
        if not options.rehearse and {"Disabled"} != set(hardware.mig_mode()):
            sys.exit("MIG is on already: this would take away what somebody has cut")
        hardware.up()
        try:
            rows = recuts(hardware, rehearse=options.rehearse)
        finally:
            if not options.rehearse:
                by_nvidia_smi(hardware.geometry, [])
            hardware.put_back()
        found = {"gpu": hardware.gpus[0].name, "mig_mode_at_the_end": hardware.mig_mode(), "rows": rows}
    text = f"One {found['gpu']}.\n\n{table(list(rows[0]), [list(row.values()) for row in rows])}"
    keep(options.out, "layouts", text, found)
    publish("layouts", text, found, write=options.write, page=DOCUMENT)


if __name__ == "__main__":
    main()
