"""What a message proposes: the word that was probably meant, and none where no word is near."""

import pytest

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.errors import did_you_mean

FIELDS = [each.alias or name for name, each in JobRequest.model_fields.items()]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("comand", "did you mean 'command'?"),
        ("GPUS", "did you mean 'gpus'?"),
        ("node", "did you mean 'nodes_max' or 'nodes_min'?"),
        ("queue", "did you mean 'requeue'?"),
        ("retry", "did you mean 'retries'?"),
        ("lables", "did you mean 'labels'?"),
        ("user", ""),
        ("owner", ""),
        ("", ""),
    ],
)
def test_a_word_is_proposed_only_where_one_is_near(word: str, meant: str) -> None:
    assert meant == did_you_mean(word, FIELDS)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--sort", ""),
        ("--usr", "did you mean '--user'?"),
        ("--tenat", "did you mean '--tenant'?"),
        ("--mien", "did you mean '--mine'?"),
        ("--no", ""),
        ("--", ""),
    ],
)
def test_dashes_make_no_two_options_alike(option: str, meant: str) -> None:
    assert meant == did_you_mean(option, ["--user", "--mine", "--tenant", "--columns", "-o"])


@pytest.mark.parametrize(("word", "meant"), [("tpo", "top"), ("tenat", "tenant"), ("gpus", "")])
def test_a_short_word_has_to_be_nearer(word: str, meant: str) -> None:
    assert (f"did you mean {meant!r}?" if meant else "") == did_you_mean(word, ["top", "tenant", "groups"])
