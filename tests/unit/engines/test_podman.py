"""How podman is called, and what its refusals mean: no podman is needed for that."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.local.gpus import cdi
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.engines.node.containers import devices, image, podman, runtimes
from gpuyard.engines.node.slurm import images


def plan(**more: Any) -> dict[str, Any]:
    return {
        "store": "/s", "others": ["/o"], "volumes": ["/job:/job"], "home": "/h", "cwd": "/w",
        "gpus": {"GPU-1": ["--device", "gpuyard.local/gpu=GPU-1"]}, **more,
    }  # fmt: skip


def container(**more: Any) -> dict[str, Any]:
    return {
        "image": "train", "name": "", "entrypoint": [], "argv": [], "env": {}, "workdir": "", "volumes": [],
        "init": False, "pull": "", **more,
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> podman.ContainerContext:
    monkeypatch.setattr(podman.os, "getuid", lambda: 1000)
    return podman.ContainerContext(str(tmp_path), "/r", "/w", 0o027, False, has_ids=True, hybrid=False)


def test_the_command_line_of_a_container(place: podman.ContainerContext) -> None:
    own = container(
        entrypoint=["/run", "a b"], argv=["--epochs", "3"], volumes=["/data:/mnt:ro", "scratch:/x"]
    )
    env = {"CUDA_VISIBLE_DEVICES": "GPU-1", "TOKEN": "s3cret", "PATH": "/own"}
    words = podman.run_words(plan(), own, 0, "docker.io/library/train:latest", env, place)

    folder = place.folder
    assert [
        "podman", "--root", f"{folder}/root", "--runroot", "/r/run", "--tmpdir", "/r/lib", "--log-level", "fatal",
        "--storage-driver", "overlay",
        "--storage-opt", "additionalimagestore=/s", "--storage-opt", "additionalimagestore=/o",
        "run", "--rm", "--pull", "never", "--name", "c0", "--pidfile", f"{folder}/pid-0",
        "--cgroups", "disabled", "--network", "host",
        "--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--umask", "0027",
        "--userns", "keep-id", "--group-add", "keep-groups", "--log-driver", "passthrough",
        "--volume", "/dev/shm:/dev/shm", "--volume", "/w:/w", "--volume", "/job:/job",
        "--volume", "/data:/mnt:ro", "--volume", f"{folder}/volumes/scratch:/x",
        "--device", "gpuyard.local/gpu=GPU-1",
        "--env", "CUDA_VISIBLE_DEVICES", "--env", "TOKEN", "--env-file", f"{folder}/env-0",
        "--workdir", "/w", "--entrypoint", '["/run", "a b"]', "docker.io/library/train:latest", "--epochs", "3",
    ] == words  # fmt: skip
    assert "s3cret" not in " ".join(words), "a command line is for all to see"
    assert "PATH=/own\n" == Path(folder, "env-0").read_text()
    assert 0o600 == Path(folder, "env-0").stat().st_mode & 0o777


def test_podman_has_settings_of_its_own_and_passes_variables_on_by_name(
    place: podman.ContainerContext,
) -> None:
    env = {"HOME": "/job", "LD_PRELOAD": "x", "CONTAINERS_CONF": "x", "TOKEN": "t", "YARD_ATTEMPT_DIR": "/a"}
    own = podman.podman_environment(place.folder, "/r", "run", plan(), env)
    passed = podman.pass_on(own, env)

    assert (place.folder, f"{place.folder}/run/engine.conf") == (passed["HOME"], passed["CONTAINERS_CONF"])
    assert ("t", "/a", podman.PATH) == (passed["TOKEN"], passed["YARD_ATTEMPT_DIR"], passed["PATH"])
    assert "LD_PRELOAD" not in passed
    with pytest.raises(ValueError, match="PATH cannot have a line break"):
        podman.run_words(plan(), container(), 0, "x", {"PATH": "a\nb"}, place)


def test_an_image_that_names_its_folder_keeps_it_where_the_job_names_none(
    place: podman.ContainerContext,
) -> None:
    words = podman.run_words(plan(), container(), 1, "x", {}, place._replace(cwd=""))

    assert "--workdir" not in words
    assert "--entrypoint" not in words
    assert "x" == words[-1]


def test_a_user_without_further_ids_is_root_inside(
    place: podman.ContainerContext,
) -> None:
    words = podman.run_words(plan(), container(), 0, "x", {}, place._replace(has_ids=False))

    assert "--userns" not in words
    assert "overlay.ignore_chown_errors=true" in words


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", ["localhost/python:latest", "docker.io/library/python:latest"]),
        ("python:3.12", ["localhost/python:3.12", "docker.io/library/python:3.12"]),
        ("myrepo/train:latest", ["localhost/myrepo/train:latest", "docker.io/myrepo/train:latest"]),
        ("nvcr.io/nvidia/pytorch:24.08-py3", ["nvcr.io/nvidia/pytorch:24.08-py3"]),
        ("127.0.0.1:5000/a", ["127.0.0.1:5000/a:latest"]),
        ("localhost/a", ["localhost/a:latest"]),
        ("ghcr.io/a/b:1@sha256:ff", ["ghcr.io/a/b@sha256:ff"]),
    ],
)
def test_a_name_stands_for_an_image_as_in_kubernetes(name: str, full: list[str]) -> None:
    assert full == podman.full_names(name)


@pytest.mark.parametrize(
    ("said", "means", "helps"),
    [
        ("Error: ... manifest unknown: manifest unknown", "docker.io has no such image", "nothing"),
        ("Error: reading manifest 9: unauthorized: authentication required", "podman login docker.io", "login"),
        ("Error: requested access to the resource is denied", "log in as ana", "login"),
        ("Error: dial tcp 127.0.0.1:9: connect: connection refused", "docker.io does not answer", "asking again"),
        ("Error: lookup docker.io: no such host", "does not answer", "asking again"),
        ("Error: writing blob: write /s/x: no space left on device", "the disk is full", "another attempt"),
        ('Error: default OCI runtime "runc" not found: invalid argument', "apt-get install crun", "another attempt"),
        ('Error: cannot set up namespace using "newuidmap": exec: executable file not found in $PATH',
         "too few ids for ana", "another attempt"),
        ("Error: mkdir /s/overlay: permission denied", "podman cannot work on this node", "another attempt"),
        ("Error: no image found in manifest list for architecture arm64", "no variant", "another attempt"),
        ("Error: something new", "cannot be pulled: Error: something new", "another attempt"),
        ("", "podman said nothing", "another attempt"),
    ],
)  # fmt: skip
def test_a_pull_that_failed_says_why_and_what_may_help(said: str, means: str, helps: str) -> None:
    text = f"Trying to pull\n{said}\n" if said else ""
    why, ask_again, for_good = podman.why_not_pulled("a", text, "ana", login="", starter="crun")
    logged_in = podman.why_not_pulled("a", text, "ana", "/home/ana/auth.json", "crun")

    assert means in why
    assert (helps == "asking again", helps in ("nothing", "login")) == (ask_again, for_good)
    assert (why, ask_again, helps == "nothing") == logged_in


@pytest.mark.parametrize(
    ("installed", "hybrid", "uid", "lacking", "taken"),
    [
        ((), False, 1000, ["podman", "crun"], "crun"),
        (("podman",), True, 1000, ["runc"], "runc"),
        (("podman", "crun"), True, 1000, ["runc"], "runc"),
        (("podman", "crun"), True, 0, [], "runc"),
        (("podman", "crun"), False, 1000, [], "crun"),
        (("podman", "runc"), False, 1000, [], "runc"),
        (("podman", "runc"), True, 1000, [], "runc"),
    ],
)
def test_what_an_image_needs_is_named(
    installed: tuple[str, ...], hybrid: bool, uid: int, lacking: list[str], taken: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    for name in installed:
        (tmp_path / name).touch(0o755)
    path = str(tmp_path)
    monkeypatch.setattr(podman.os, "geteuid", lambda: uid)

    assert (lacking, taken) == (podman.find_missing(hybrid, path), podman.runtime(hybrid, path))


@pytest.fixture
def settings_of_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of podman's settings that all users of a machine have; this is an ordinary user."""
    monkeypatch.setattr(podman.os, "getuid", lambda: 1000)
    return tmp_path / "of-all.conf"


def of_all(tmp_path: Path) -> tuple[str, str]:
    """Where such files may be."""
    return str(tmp_path / "absent"), str(tmp_path / "of-all.conf")


@pytest.mark.usefixtures("settings_of_all")
def test_images_that_a_user_built_are_found_whatever_driver_has_them(tmp_path: Path) -> None:
    home, own = str(tmp_path), tmp_path / ".local" / "share" / "containers" / "storage"
    assert {"others": [], "copied": []} == podman.find_user_stores(home, of_all(tmp_path))
    for driver in ("vfs", "overlay"):
        (own / f"{driver}-images").mkdir(parents=True)
        (own / f"{driver}-images" / "images.json").write_text(
            '[{"id": "7", "names": ["localhost/a:latest"]}]'
        )

    assert {"others": [str(own)], "copied": [f"vfs@{own}"]} == podman.find_user_stores(home, of_all(tmp_path))
    assert {"localhost/a:latest": "7"} == podman.list_images(str(own), "vfs", "id")


@pytest.mark.parametrize(
    ("users", "common", "own"),
    [
        ('[storage]\ndriver = "vfs"\ngraphroot = "/data/vfs/" # mine\n', "", "/data/vfs"),
        ("[storage]\n  graphroot='$HOME/x-${UID}'\n", '[storage]\nrootless_storage_path = "/all"', "{home}/x-1000"),
        ('[storage]\nrunroot = "/r"\n', '[storage]\ngraphroot = "/root-only"\nrootless_storage_path = "/all/$UID"',
         "/all/1000"),
        ('[storage.options]\ngraphroot = "/no"\n#graphroot = "/no"\n', "", "{home}/.local/share/containers/storage"),
        ('[storage]\ngraphroot = "relative"\n', "", "{home}/.local/share/containers/storage"),
        ("[storage]\n" + "# much\n" * 10_000 + 'graphroot = "/no"\n', "", "{home}/.local/share/containers/storage"),
    ],
)  # fmt: skip
def test_the_store_of_a_user_is_where_podmans_settings_have_it(
    settings_of_all: Path, tmp_path: Path, users: str, common: str, own: str
) -> None:
    settings_of_all.write_text(common)
    file = tmp_path / ".config" / "containers" / "storage.conf"
    file.parent.mkdir(parents=True)
    file.write_text(users)

    assert own.format(home=tmp_path) == podman.find_own_store(str(tmp_path), of_all(tmp_path))


@pytest.mark.usefixtures("settings_of_all")
def test_settings_that_are_a_pipe_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".config" / "containers").mkdir(parents=True)
    os.mkfifo(tmp_path / ".config" / "containers" / "storage.conf")

    assert f"{tmp_path}/.local/share/containers/storage" == podman.find_own_store(
        str(tmp_path), of_all(tmp_path)
    )


@pytest.mark.usefixtures("settings_of_all")
@pytest.mark.parametrize("pull", ["", "always", "never"])
def test_an_image_of_ones_own_that_was_not_built_is_asked_of_no_registry(tmp_path: Path, pull: str) -> None:
    wanted = {"folder": str(tmp_path), "short": "/s", "store": str(tmp_path), "home": str(tmp_path)}
    containers = image.Containers(wanted, {})
    with pytest.raises(
        runtimes.Failed, match="has built no such image on this node; `podman images` shows"
    ) as failed:
        containers._have("localhost/mistyped", pull)

    assert failed.value.for_good


def test_facts_of_a_task_are_believed_as_far_as_they_make_sense(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    file = tmp_path / "7" / image.FACTS
    assert {} == image.read_facts(str(tmp_path), 7)
    for text in (
        "[]",
        "{",
        "null",
        '{"pull_ms": true, "image": 3}',
        "[" * 60_000,
        f'{{"pull_ms": {10**30}}}',
    ):
        file.write_text(text)
        assert {} == image.read_facts(str(tmp_path), 7)
    file.write_text(json.dumps({"image": "a", "pull_ms": 3, "other": 1}))
    assert {"image": "a", "pull_ms": 3} == image.read_facts(str(tmp_path), 7)
    file.write_text(json.dumps({"why": "w" * 10_000}))
    assert {"why": f"{'w' * 478} [the rest is cut off]"} == image.read_facts(str(tmp_path), 7), (
        "the end of an attempt has a place of 4 KiB"
    )


def test_a_store_that_is_not_there_or_broken_has_no_images(tmp_path: Path) -> None:
    assert {} == podman.list_images(str(tmp_path))
    (tmp_path / "overlay-images").mkdir()
    (tmp_path / "overlay-images" / "images.json").write_text(
        '[{"id": "1", "names": null}, {"names": ["a"], "digest": "d"}]'
    )
    assert {"a": "d"} == podman.list_images(str(tmp_path))


LIBRARIES = {"libcuda.so.1": "/lib/libcuda.so.1"}


def test_the_specification_of_gpus_names_each_by_its_uuid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places: Any = {"folders": (str(tmp_path / "etc"), str(tmp_path / "run")), "libraries": LIBRARIES}
    readings = [GpuReading("GPU-a", "H100", 80_000, minor=3), GpuReading("GPU-b", "H100", 80_000)]
    found = cdi.specification(readings, LIBRARIES)

    assert [("GPU-a", "/dev/nvidia3"), ("GPU-b", "/dev/nvidia1")] == [
        (each["name"], each["containerEdits"]["deviceNodes"][0]["path"]) for each in found["devices"]
    ]
    assert "/usr/lib64/libcuda.so.1" in [each["containerPath"] for each in found["containerEdits"]["mounts"]]
    own = cdi.Devices("/data", emulated=False, **places)
    monkeypatch.setattr(cdi.os, "geteuid", lambda: 0)
    assert ["--device", "gpuyard.local/gpu=GPU-b"] == own.words([readings])["GPU-b"]
    (written,) = (tmp_path / "run").iterdir()
    assert found == json.loads(written.read_text())
    monkeypatch.setattr(cdi.os, "geteuid", lambda: 1000)
    words = cdi.Devices("/data", emulated=False, **places).words([readings])["GPU-a"]
    assert ["--device", "/dev/nvidia3:/dev/nvidia3"] == words[:2]


def test_an_emulated_gpu_is_a_file_in_the_containers_of_an_ordinary_users_yard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    readings = [GpuReading("GPU-a", "H100", 80_000), GpuReading("GPU-b", "H100", 80_000)]
    own, made = cdi.Devices(str(tmp_path), emulated=True), tmp_path / cdi.DEVICES
    assert ["--device", "/dev/null:/dev/nvidia1"] == own.words([readings])["GPU-b"]
    made.mkdir()
    for uid, words in (
        (0, ["--device", f"{made}/GPU-b:/dev/nvidia1"]),
        (1000, ["--volume", f"{made}/GPU-b:/dev/nvidia1:ro"]),
    ):
        monkeypatch.setattr(cdi.os, "geteuid", lambda uid=uid: uid)
        assert words == own.words([readings])["GPU-b"]


def test_the_toolkits_own_specification_counts(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices:\n- name: GPU-a\n- name: '1'\n")
    folders = str(tmp_path), str(tmp_path)
    readings = [GpuReading("GPU-a", "H100", 80_000), GpuReading("GPU-b", "H100", 80_000)]

    assert {
        "GPU-a": ["--device", "nvidia.com/gpu=GPU-a"],
        "GPU-b": ["--device", "nvidia.com/gpu=1"],
    } == cdi.Devices("/data", emulated=False, folders=folders).words([readings])
    assert ["--device", "nvidia.com/gpu=1"] == devices.gpu_words("1", folders)


def test_a_gpu_of_slurm_comes_with_the_drivers_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices.os.path, "exists", lambda path: path in ("/dev/nvidia3", "/dev/nvidiactl"))
    words = devices.gpu_words("3", (str(tmp_path), str(tmp_path)), LIBRARIES)
    assert ["--device", "/dev/nvidia3:/dev/nvidia3", "--device", "/dev/nvidiactl:/dev/nvidiactl"] == words[:4]
    assert any([word.endswith(":/usr/lib64/libcuda.so.1:ro") for word in words])


def nothing_missing(_image: dict[str, Any]) -> list[str]:
    return []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_a_user_who_makes_the_folder_of_another_first_keeps_no_job_in_an_image_from_starting(
    tmp_path: Path,
) -> None:
    pattern = str(tmp_path / "box-{}")
    theirs = tmp_path / f"box-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    for path in (theirs, Path(f"{theirs}-a")):
        path.mkdir(0o700)
        os.chown(path, 12345, 12345)
    Path(f"{theirs}-b").symlink_to(elsewhere)
    Path(f"{theirs}-c").touch()
    found = images.plan_images(
        {"key": "y-1-1", "image": {"home": str(tmp_path), "by": "podman"}}, "n1", pattern
    )
    images.make(found, nothing_missing)
    own = Path(found["store"]).parent
    assert own.name.startswith(f"{theirs.name}-")
    assert (0, 0o700) == (own.lstat().st_uid, own.lstat().st_mode & 0o7777)
    assert [] == [*elsewhere.iterdir(), *theirs.iterdir(), *Path(f"{theirs}-a").iterdir()]
    again = images.plan_images(
        {"key": "y-2-1", "image": {"home": str(tmp_path), "by": "podman"}}, "n1", pattern
    )
    assert found["store"] == again["store"], "images are pulled once"

    shutil.rmtree(theirs)
    theirs.symlink_to(elsewhere)
    assert str(own) == images.own_folder(pattern)


def test_a_folder_that_is_open_to_other_users_holds_no_images(
    tmp_path: Path,
) -> None:
    pattern = str(tmp_path / "box-{}")
    found = images.plan_images(
        {"key": "y-1-1", "image": {"home": str(tmp_path), "by": "podman"}}, "n1", pattern
    )
    images.make(found, nothing_missing)
    images.make(found, nothing_missing)
    assert 0o700 == (tmp_path / f"box-{os.getuid()}").stat().st_mode & 0o777
    images.clear(found)
    assert ["images"] == os.listdir(tmp_path / f"box-{os.getuid()}")
    (tmp_path / f"box-{os.getuid()}").chmod(0o755)
    with pytest.raises(
        runtimes.Failed, match=r"is open to other users; close it \(chmod 700\), or remove it"
    ):
        images.own_folder(pattern)
    with pytest.raises(runtimes.Failed, match="podman is not installed on node"):
        images.make(found, lambda _image: ["podman"])


# -- what else may run a container: neither pyxis nor Apptainer was there to try --------------------------------------


@pytest.fixture
def slurm_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "8")
    monkeypatch.setattr(runtimes.shutil, "which", lambda _name: "/opt/slurm/bin/srun")


SRUN = [
    "/opt/slurm/bin/srun", "--nodes=1", "--ntasks=1", "--nodelist=n1", "--cpus-per-task=8", "--mem=0", "--overlap",
    "--wait=0", "--kill-on-bad-exit=0", "--quiet", "--quiet", "--chdir=/",
]  # fmt: skip


@pytest.mark.usefixtures("slurm_node")
def test_the_command_line_of_pyxis(place: podman.ContainerContext) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "TOKEN": "s3cret", "LD_LIBRARY_PATH": "/x"}
    own = container(argv=["--epochs", "3"], volumes=["/data:/mnt:ro"])
    order = runtimes.Order(own, 0, "nvcr.io/nvidia/pytorch:24.01-py3", env, place)
    words, passed = runtimes.run_words(plan(by="pyxis"), order, {})

    assert [
        *SRUN, "--export=ALL,LD_LIBRARY_PATH=/x", "--input=none", "--container-image=nvcr.io#nvidia/pytorch:24.01-py3",
        "--container-mounts=/w:/w,/job:/job,/data:/mnt:ro", "--container-workdir=/w", "--no-container-mount-home",
        "--container-writable", "--no-container-remap-root",
        "--container-env=CUDA_VISIBLE_DEVICES,LD_LIBRARY_PATH,TOKEN", "--container-entrypoint", "--epochs", "3",
    ] == words  # fmt: skip
    assert {"CUDA_VISIBLE_DEVICES": "0,1", "TOKEN": "s3cret"} == passed, (
        "srun itself is not to load others' libraries"
    )

    script = container(entrypoint=["/a/script"], workdir="/inside")
    order = runtimes.Order(script, 0, "docker.io/library/train:1", {}, place._replace(terminal=True))
    words, _ = runtimes.run_words(plan(by="pyxis"), order, {})
    assert ["--pty", "--container-image=library/train:1"] == words[len(SRUN) + 1 :][:2]
    assert ["--container-workdir=/inside", "--no-container-entrypoint", "/a/script"] == [
        word for word in words if "workdir" in word or "entrypoint" in word or word == "/a/script"
    ]


@pytest.mark.usefixtures("slurm_node")
@pytest.mark.parametrize(
    ("by", "full", "more", "env", "says"),
    [
        ("pyxis", "q.io/train@sha256:12", {}, {}, "is named by its digest, and pyxis knows tags alone"),
        ("pyxis", "q.io/train:1", {"volumes": ["/a,b:/c"]}, {}, "path of a volume cannot have a comma"),
        ("pyxis", "q.io/train:1", {}, {"LD_PRELOAD": "a,b"}, "LD_PRELOAD cannot have a comma"),
        ("pyxis", "/bundles/train", {}, {}, "/bundles/train is a bundle, and pyxis runs images alone"),
        (
            "apptainer",
            "/bundles/train",
            {},
            {},
            "/bundles/train is a bundle, and apptainer runs images alone",
        ),
    ],
)
def test_what_other_runtimes_cannot_run_is_said(
    place: podman.ContainerContext, by: str, full: str, more: Any, env: dict[str, str], says: str
) -> None:
    with pytest.raises(runtimes.Failed, match=says):
        runtimes.run_words(plan(by=by), runtimes.Order(container(**more), 0, full, env, place), {})


def test_the_command_line_of_apptainer(place: podman.ContainerContext) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", "TOKEN": "s3cret", "PATH": "/own"}
    own = container(argv=["--epochs", "3"], volumes=["/data:/mnt:ro"])
    order = runtimes.Order(own, 0, "docker.io/library/train:1", env, place)
    words, passed = runtimes.run_words(plan(by="apptainer", store="/v/images"), order, {})

    folder = place.folder
    assert [
        "apptainer", "run", "--nv", "--contain", "--cleanenv", "--no-home", "--pid", "--writable-tmpfs",
        "--bind", f"{folder}/tmp:/tmp", "--bind", f"{folder}/tmp:/var/tmp", "--bind", "/dev/shm:/dev/shm",
        "--bind", "/w:/w", "--bind", "/job:/job", "--bind", "/data:/mnt:ro", "--pwd", "/w",
        "docker://docker.io/library/train:1", "--epochs", "3",
    ] == words  # fmt: skip
    assert ("s3cret", "/own", podman.PATH) == (
        passed["APPTAINERENV_TOKEN"], passed["APPTAINERENV_PATH"], passed["PATH"],
    )  # fmt: skip
    assert "/v/apptainer" == passed["APPTAINER_CACHEDIR"], "images are kept on the node, for this user alone"

    script = container(entrypoint=["/a/script"], argv=["x"])
    words, _ = runtimes.run_words(plan(by="apptainer"), runtimes.Order(script, 0, "q.io/a:1", {}, place), {})
    assert ["apptainer", "exec", "--contain"] == words[:3], "without a GPU nothing of the driver is asked for"
    assert ["docker://q.io/a:1", "/a/script", "x"] == words[-3:]
