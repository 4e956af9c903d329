"""A configuration for Slurm: the script of sacctmgr commands."""

from gpuyard.config.reading import loads
from gpuyard.config.slurm.exporting_accounts import list_people, write_script
from gpuyard.engines.slurm.site.notes import Notes

YARD = """\
version: 1
clusters: {main: {pools: {h100: {nodes: 4, gpus: 8 x H100, cpus: 96, memory: 1T}}}}
tenants: {research: , ml: {parent: research}, product: }
classes: {batch: , slow: , top: {tenants: research/ml, users: [bob, eve]}}
auth: {users: {ana: {tenant: product}, bob: {tenant: product}}}
"""


def test_a_class_that_is_not_everybodys_is_given_to_those_whose_it_is() -> None:
    config = loads(YARD, "yard.yaml")
    notes = Notes()
    text = write_script(config, "main", {}, list_people(config, ()), "", notes)

    assert [
        "change account where name=root cluster=$CLUSTER set qos=batch,slow",
        "change account where name=ml cluster=$CLUSTER set qos+=top",
        "change user where name=bob cluster=$CLUSTER set qos+=top",
    ] == [line for line in text.splitlines() if " set qos" in line]
    assert "user 'eve' of class 'top': no such user is made" in str(notes)
