"""gpuyard as people install it: wheel and sdist of this checkout, in environments that hold nothing else."""

import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.conftest import COMMAND_S, Box, Done
from harness.patience import patient
from rigs.postgres import PostgresServer
from rigs.terminal import Pseudo

pytestmark = pytest.mark.rig

ROOT = Path(__file__).resolve().parents[2]
INSTALL_S = 600
CONFIG = """version: 1
clusters: {box: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}}
"""
LOGIN = CONFIG + "auth: {oidc: {issuer: 'https://id.example.org', client_id: yard}}\n"


@dataclass(frozen=True)
class Packages:
    """What `make dist` has made."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [ROOT / "scripts" / "dist", folder],
        capture_output=True, text=True, timeout=patient(INSTALL_S), check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    # Its lines are broken at the width of a terminal.
    said = " ".join(done.stdout.split())
    assert [True, True] == [f"Checking {each}: PASSED" in said for each in (wheel, sdist)], said
    return Packages(wheel, sdist)


class Installed(Box):
    """A yard whose commands are those of an environment of its own."""

    def __init__(self, folder: Path, *, config: str = "") -> None:
        super().__init__(folder / "yard", config)
        self.bin = folder / "venv" / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=patient(INSTALL_S)
        )

    @property
    def environment(self) -> dict[str, str]:
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        kept = {name: value for name, value in super().environment.items() if name not in hidden}
        return kept | {"PATH": f"{self.bin}:/usr/bin:/bin"}

    def command(self, *words: object) -> list[str]:
        return [str(self.bin / "yard"), *map(str, words)]

    def install(self, what: object, *options: str, **env: str) -> str:
        """`pip install`; what it said."""
        done = subprocess.run(
            [self.bin / "python", "-m", "pip", "install", "--no-input", *options, str(what)],
            capture_output=True, text=True, timeout=patient(INSTALL_S), check=False, env=self.environment | env,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def packages(self) -> set[str]:
        """What is installed there."""
        words = [str(self.bin / "python"), "-m", "pip", "list", "--format=freeze"]
        return set(
            subprocess.run(
                words, capture_output=True, text=True, timeout=patient(COMMAND_S), check=True
            ).stdout.split()
        )

    def page(self) -> str:
        """What a browser gets of the yard that runs."""
        url = f"http://127.0.0.1:{self.note()['port']}/"
        asked = urllib.request.Request(url, headers={"Accept": "text/html"})
        found: str = urllib.request.urlopen(asked, timeout=patient(COMMAND_S)).read().decode()
        return found


@pytest.fixture
def clean(tmp_path: Path) -> Iterator[Installed]:
    """An environment without gpuyard, and its yard."""
    yield from installed(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, packages: Packages) -> Iterator[Installed]:
    """An environment with the wheel, and no extra; its yard is up."""
    for made in installed(tmp_path_factory.mktemp("plain")):
        made.install(packages.wheel)
        made.up()
        yield made


def installed(folder: Path) -> Iterator[Installed]:
    made = Installed(folder, config=CONFIG)
    yield made
    if (made.bin / "yard").exists():
        made("down", "--jobs")


def first_job(box: Installed) -> None:
    """The README's first lines, on a yard that is up."""
    assert "yard 0." in box("--version").out
    show = 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])'
    ran = box("run", "-g", 1, "--", "python3", "-c", show)
    assert (0, True) == (ran.code, ran.out.startswith("GPU-emulated-")), ran.err
    assert '<div id="app">' in box.page()


def top(box: Installed) -> Done:
    with Pseudo(box.command("top"), box.environment, box.data.parent) as screen:
        screen.until("A100-80GB" if "textual" in str(box.packages()) else "[ui]")
        screen.type("q")
        return Done(screen.code(), screen.shown.decode(errors="replace"), "")


def login(box: Installed) -> Done:
    box("down")
    box.config.write_text(LOGIN)
    done = box("up", "-d", "--port", 0, "--auth", "--config", box.config)
    box("down")
    box.config.write_text(CONFIG)
    box.up()
    return done


def another_store(box: Installed) -> Done:
    server = PostgresServer()
    try:
        return box("store", "copy", box.data / "yard.db", server.fresh())
    finally:
        server.stop()


def columns(box: Installed) -> Done:
    target = box.data.parent / "cost.parquet"
    with target.open("wb") as file:
        done = subprocess.run(
            box.command("cost", "-o", "parquet"),
            stdout=file, stderr=subprocess.PIPE, text=True, timeout=patient(COMMAND_S), check=False,
            env=box.environment,
        )  # fmt: skip
    return Done(done.returncode, target.read_bytes()[:4].decode(errors="replace"), done.stderr)


FEATURES: dict[str, tuple[Callable[[Installed], Done], str]] = {
    "auth": (login, "the yard is up"),
    "parquet": (columns, "PAR1"),
    "postgresql": (another_store, "copied to"),
    "ui": (top, "A100-80GB"),
}
"""By extra: what needs it, and what is said once it is there."""


def test_the_wheel_alone_runs_the_first_job_and_shows_the_console(plain: Installed) -> None:
    first_job(plain)


def test_the_wheel_has_the_licences_of_what_the_console_bundles(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as archive:
        told = archive.read("gpuyard/console/licences.txt").decode()
    heads = [part.split()[0] for part in told.split("-" * 80)[1:]]
    assert {"svelte", "@xterm/xterm", "@xterm/addon-fit"} <= set(heads)
    assert len(heads) == told.lower().count("permission is hereby granted")


@pytest.mark.wide
@pytest.mark.parametrize("extra", FEATURES)
def test_an_extra_brings_what_it_is_for(plain: Installed, packages: Packages, extra: str) -> None:
    """Without it the yard names it; with it and no other, the feature works."""
    use, says = FEATURES[extra]
    before = plain.packages()
    missing = use(plain)
    assert f"[{extra}]'" in missing.out + missing.err
    try:
        plain.install(f"{packages.wheel}[{extra}]")
        there = use(plain)
        assert (0, True) == (there.code, says in there.out), there
    finally:
        more = [each.partition("==")[0] for each in plain.packages() - before]
        words = [plain.bin / "python", "-m", "pip", "-qq", "uninstall", "-y", *more]
        subprocess.run(words, check=True, timeout=patient(INSTALL_S))
    assert before == plain.packages()


def test_every_extra_can_be_had() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(["dev", *FEATURES]) == sorted(named)


@pytest.mark.wide
def test_what_development_needs_fits_together(plain: Installed, packages: Packages) -> None:
    assert "Would install" in plain.install(f"{packages.wheel}[dev]", "--dry-run")


@pytest.mark.wide
def test_an_sdist_is_installed_without_node_and_has_the_console(clean: Installed, packages: Packages) -> None:
    said = clean.install(packages.sdist, "-v", npm_config_registry="http://127.0.0.1:9/")
    assert "nodejs" not in said
    clean.up()
    first_job(clean)


def test_an_sdist_holds_what_is_ours(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/gpuyard/console/index.html", "console/package-lock.json", "LICENSE", "README.md"} <= names
    assert "src/gpuyard/console/licences.txt" in names
    assert not [name for name in names if "node_modules" in name or name.startswith((".ci", "build", "dist"))]
