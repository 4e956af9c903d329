"""Export to Slurm and import again: the same, in all that both can say."""

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.config import Config
from gpuyard.config.reading import loads
from gpuyard.config.slurm.exporting import Wishes, export
from gpuyard.config.slurm.importing import make_document
from gpuyard.engines.slurm.site import site
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from rigs.slurm.policy import StandIn, said, site_texts

MODELS = ("H100", "A100-80GB", "T4", "L40S", "V100")
names = st.text("abcdefghij", min_size=1, max_size=6).map("t".__add__)
minutes = st.integers(1, 10_000).map(lambda number: f"{number}m")
seconds = st.integers(0, 100_000).map(lambda number: f"{number}s")


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    models = draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=3, unique=True))
    pools = {
        f"pool{place}": {
            "nodes": draw(st.integers(1, 40)),
            "gpus": f"{draw(st.integers(1, 16))} x {model}",
            "cpus": draw(st.integers(1, 256)),
            "memory": f"{draw(st.integers(1, 4000))}G",
            **({"features": ["nvme", "ib"]} if draw(st.booleans()) else {}),
        }
        for place, model in enumerate(models)
    }
    quota = st.none() | st.dictionaries(st.sampled_from(["total", *models]), st.integers(0, 99), min_size=1)
    tenants: dict[str, Any] = {}
    users: dict[str, Any] = {}
    paths: dict[str, str] = {}
    for name in draw(st.lists(names, min_size=1, max_size=6, unique=True)):
        parent = draw(st.sampled_from([None, *paths]))
        entry: dict[str, Any] = {"weight": draw(st.integers(1, 1000))}
        if parent:
            entry["parent"] = parent
        for key, values in (
            ("limit", quota),
            ("max_gpus_per_job", st.none() | st.integers(1, 64)),
            ("max_running_jobs", st.none() | st.integers(1, 500)),
        ):
            value = draw(values)
            if value is not None:
                entry[key] = value
        tenants[name] = entry
        if parent and draw(st.integers(0, 3)) == 0:
            users[name] = {"tenant": paths[parent]}
        else:
            paths[name] = f"{paths[parent]}/{name}" if parent else name
    classes = draw(
        st.dictionaries(
            st.sampled_from(["normal", "high", "low", "mid"]),
            st.fixed_dictionaries(
                {
                    "priority": st.integers(0, 1000),
                    "preemptible": st.booleans(),
                    "grace": seconds,
                    "min_run": seconds,
                },
                optional={"limit": minutes},
            ),
            min_size=1,
        )
    )
    policy = {
        "order": draw(st.sampled_from([["fifo"], ["class"], ["fair"], ["class", "fair"], ["fair", "class"]])),
        "backfill": draw(st.sampled_from(["easy", "conservative", "none"])),
        "backfill_depth": draw(st.integers(1, 900)),
        "depth_per_tenant": draw(st.integers(1, 900)),
        "preemption": draw(st.sampled_from([[], ["class"]])),
        "quotas": draw(st.booleans()),
    }
    return {
        "version": 1,
        "clusters": {"rig": {"engine": "slurm", "pools": pools}},
        "tenants": tenants,
        "classes": classes,
        "default_class": draw(st.sampled_from(sorted(classes))),
        "fairness": {
            "half_life": f"{draw(st.integers(200, 9000))}m",
            "period": f"{draw(st.integers(1, 200))}m",
        },
        "policy": "mine",
        "policies": {"mine": policy},
        **({"auth": {"users": users}} if users else {}),
    }


def again(config: Config) -> Config:
    """Through Slurm and back."""
    files = export(config, Wishes(), Notes())
    stand_in = StandIn("rig")
    stand_in.run(files["sacctmgr.sh"])
    # What is run again changes nothing.
    before = stand_in.texts()
    stand_in.run(files["sacctmgr.sh"])
    assert before == stand_in.texts()
    found = site.read({**site_texts(files, "rig"), **before}, {})
    return loads(yaml.safe_dump(make_document(found, GpuTypes(), Notes()), sort_keys=False))


@settings(max_examples=60, deadline=None)
@given(documents())
def test_export_and_import_are_the_identity_on_what_both_can_say(plain: dict[str, Any]) -> None:
    config = loads(yaml.safe_dump(plain, sort_keys=False))

    ours, theirs = said(config), said(again(config))

    if plain["policies"]["mine"]["backfill"] == "none":
        # Without backfill Slurm has no depth to speak of.
        ours["backfill"] = theirs["backfill"] = (ours["backfill"][0] == theirs["backfill"][0] == "none",)
    if "normal" not in plain["classes"]:
        # Slurm always has this one.
        theirs["classes"].pop("normal")
    assert ours == theirs
