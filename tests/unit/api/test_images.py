"""The fields of a job in container images, on the wire."""

from typing import Any

import pytest
from pydantic import ValidationError

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.engines.contract import Container


def request(**fields: Any) -> JobRequest:
    return JobRequest.model_validate({"image": "python:3.12", **fields})


def test_an_image_needs_no_command_and_gives_the_job_its_name() -> None:
    new = request(image="ghcr.io/team/train:1.2@sha256:00").new_job()

    assert ("train", (), (Container("ghcr.io/team/train:1.2@sha256:00"),)) == (
        new.wanted.name,
        new.recipe.argv,
        new.recipe.containers,
    )


def test_the_spelling_of_enroot_is_taken_everywhere() -> None:
    asked = request(image="nvcr.io#nvidia/pytorch:24.01-py3", containers=[{"image": "ghcr.io#a/b"}])

    assert ["nvcr.io/nvidia/pytorch:24.01-py3", "ghcr.io/a/b"] == [
        each.image for each in asked.new_job().recipe.containers
    ]


def test_volumes_secrets_and_further_containers_become_containers() -> None:
    new = request(
        volumes=["/data", "/data:/mnt:ro", "scratch:/s"], secrets={"hf": "/home/a/.hf"}, pull="missing",
        containers=[{"image": "busybox", "init": True, "command": ["true"], "volumes": ["/data"]}],
    ).new_job()  # fmt: skip

    volumes = ("/data:/data", "/data:/mnt:ro", "scratch:/s", "/home/a/.hf:/run/secrets/hf:ro")
    others = Container("busybox", init=True, argv=("true",), volumes=("/data:/data",))
    assert (Container("python:3.12", volumes=volumes), others) == new.recipe.containers


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"image": "--privileged"}, "is a reference such as"),
        ({"image": "a b"}, "is a reference such as"),
        ({"image": "#nvidia/pytorch"}, "is a reference such as"),
        ({"image": "nvcr.io#"}, "is a reference such as"),
        ({"image": "", "command": ["true"], "volumes": ["/data"]}, "'volumes' is for jobs in an image"),
        ({"image": ""}, "there is nothing to run"),
        ({"volumes": ["data"]}, "with absolute paths"),
        ({"volumes": ["/a:/b:suid"]}, "with absolute paths"),
        ({"volumes": ["../a:/b"]}, "with absolute paths"),
        ({"secrets": {"a/b": "/x"}}, "cannot be a name"),
        ({"secrets": {"a": "x"}}, "by its absolute path"),
        ({"script": "#!/bin/sh\n", "entrypoint": ["sh"]}, "leave 'entrypoint' out"),
        ({"containers": [{"image": "-v"}]}, "is a reference such as"),
        ({"pull": "newer"}, "missing"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        request(**fields)
