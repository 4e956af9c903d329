"""Every page of the console in every state that a yard is in, as pictures, and what axe finds on it.

Light and dark, 1440 and 390 pixels wide: nothing may be wider than the page. Pictures are made where GPUYARD_SHOTS
names a folder for them; docs/pictures/console.png is `busy-yard-light-1440.png` of it.
"""

from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box
from rigs.console.browser import go, looked, page_of

pytestmark = [pytest.mark.rig, pytest.mark.wide]
EMPTY = """
version: 1
clusters:
  east: {gpus: 8 x H100, emulate: true, allow_root: true}
"""
BUSY = """
version: 1
clusters:
  east:
    allow_root: true
    pools:
      h100: {gpus: 8 x H100, nodes: 12, emulate: true}
      a100: {gpus: 8 x A100-80GB, nodes: 4, emulate: true}
tenants:
  research: {weight: 2, guarantee: 32}
  vision: {parent: research}
  speech: {parent: research, limit: 8}
  product: {guarantee: 16, limit: 40, max_running_jobs: 20, budget: {gpu_hours: 500, window: 7d}}
  batch: {}
budgets:
  month: {tenant: research, gpu_hours: 2000, window: month}
  dollars: {tenant: product, usd: 5000, window: month, action: soft}
"""
LARGE = """
version: 1
attempts_per_user: 100000
clusters:
  west:
    allow_root: true
    pools:
      h100: {gpus: 8 x H100, nodes: 1250, emulate: true}
tenants: {research: {}, product: {}, batch: {}}
"""
JOBS = (
    ("train-vision", "research/vision", 8, 3, 1, "95% 60GiB"),
    ("train-large", "research/vision", 8, 2, 1, "91% 70GiB"),
    ("speech-finetune", "research/speech", 4, 1, 1, "80% 40GiB"),
    ("forgotten-notebook", "research/speech", 2, 1, 1, "0% 1GiB"),
    ("render", "product", 8, 1, 2, "60% 30GiB"),
    ("serve-ranker", "product", 1, 1, 3, "55% 20GiB"),
    ("nightly", "batch", 4, 2, 3, "97% 50GiB"),
)
"""Name, tenant, GPUs of a task, tasks, how many, and what the GPUs of each do."""
PAGES = {
    "queue": "Queue", "job/1": "", "yard": "Yard", "submit": "Submit", "submit/paste": "How the yard reads it",
    "nodes": "Nodes", "gpus": "GPUs", "topology": "Links", "mig": "Slices", "doctor": "Fences", "tenants": "Tenants",
    "share": "Shares", "budgets": "Budgets", "waits": "Waits", "cost": "Money", "cost/savings": "Savings",
    "cost/statement": "Statement", "efficiency": "Efficiency", "whatif": "yard.yaml", "audit": "Audit",
}  # fmt: skip
"""Pages, and what each shows once it is there."""


def empty(_box: Box) -> None:
    """Nothing was ever submitted."""


def busy(box: Box) -> None:
    """Three teams and what they do, one GPU that is forgotten, and jobs that wait for different reasons."""
    for name, tenant, gpus, tasks, many, load in JOBS:
        for _ in range(many):
            box("submit", "--gpus", gpus, "--tasks", tasks, "--tenant", tenant, "-t", "8h", "--name", name, "--",
                "sleep", "900", YARD_EMULATED_LOAD=load)  # fmt: skip
    box("submit", "--gpus", 8, "--tasks", 12, "--tenant", "research/vision", "-t", "4h", "--name", "pretrain", "--",
        "true")  # fmt: skip
    box("submit", "--gpus", 8, "--tenant", "research/speech", "-t", "1h", "--name", "too-many", "--", "true")
    box("submit", "--gpus", 1, "--tenant", "batch", "--hold", "--name", "later", "--", "true")
    done = box.submit(
        "--gpus", 1, "--tenant", "batch", "-t", "1m", "--name", "short", "--", "sh", "-c", "echo done"
    )
    box.wait(done, "COMPLETED")


def large(box: Box) -> None:
    """Ten thousand GPUs, some of them at work, and a long line."""
    for tenant, tasks in (("research", 20), ("product", 12), ("batch", 8)):
        box("submit", "--gpus", 8, "--tenant", tenant, "-t", "2h", "--array", f"0-{tasks}", "--name", f"sweep-{tenant}",
            "--", "sleep", "900")  # fmt: skip
    box(
        "submit",
        "--gpus",
        8,
        "--tasks",
        1251,
        "--hold",
        "--tenant",
        "batch",
        "--name",
        "too-large",
        "--",
        "true",
    )
    box(
        "submit",
        "--gpus",
        1,
        "--tenant",
        "batch",
        "--hold",
        "--array",
        "0-5000",
        "--name",
        "line",
        "--",
        "true",
    )


STATES = {"empty": (EMPTY, empty), "busy": (BUSY, busy), "large": (LARGE, large)}


def findings(page: Any, state: str, colours: str) -> dict[str, str]:
    """What axe finds on each page, wide in one of the colours and narrow in the other."""
    found = {}
    for name, ready in PAGES.items():
        go(page, name)
        if ready and state != "away":
            page.locator("main").get_by_text(ready).first.wait_for()
        page.get_by_text("One moment…").first.wait_for(state="detached")
        found[name] = looked(page, f"{state}-{name.replace('/', '-')}", colours)
    return {name: what for name, what in found.items() if what}


@pytest.mark.parametrize("state", STATES)
def test_every_page_has_no_serious_finding_and_fits(chrome: Any, tmp_path: Path, state: str) -> None:
    config, filled = STATES[state]
    box = Box(tmp_path / "data", config)
    box.up()
    away = {}
    try:
        filled(box)
        with page_of(chrome, f"http://127.0.0.1:{box.note()['port']}/") as page:
            page.goto(box("open", "--no-browser").out.strip())
            page.get_by_role("heading", name="Queue").wait_for()
            if state == "busy":
                page.get_by_text("2 waiting, 1 set aside").wait_for()
            there = findings(page, state, "dark" if state == "large" else "light")
            if state == "busy":
                box("down")
                page.get_by_text("The yard is away").wait_for()
                away = findings(page, "away", "dark")
    finally:
        box("up", "-d") if state == "busy" else None
        box("down", "--jobs")

    assert ({}, {}) == (there, away)
