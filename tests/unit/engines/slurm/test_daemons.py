"""Lines of Slurm's own logs about one job."""

from pathlib import Path

from gpuyard.engines.slurm.site.daemons import LINE_CHARS, LINES_MAX, TAIL_BYTES, find_lines, log_files

CONTROLLER = """\
[2026-11-16T19:00:00.1] _slurm_rpc_submit_batch_job: JobId=17 InitPrio=1 usec=600
[2026-11-16T19:00:01.2] sched: Allocate JobId=17 NodeList=n1 #CPUs=1 Partition=gpu
[2026-11-16T19:00:02.3] sched: Allocate JobId=170 NodeList=n2 #CPUs=1 Partition=gpu
[2026-11-16T19:00:02.4] sched: Allocate JobId=17_3(21) NodeList=n2 #CPUs=1 Partition=gpu
[2026-11-16T19:00:03.4] _job_complete: JobId=17 WEXITSTATUS 0
"""
NODE = """\
[2026-11-16T19:00:01.3] Launching batch job 17 for UID 1001
[2026-11-16T19:00:01.4] [17.batch] task_p_pre_launch: \x1b[31mUsing sched_affinity
[2026-11-16T19:00:01.5] [117.batch] another
"""


def test_lines_that_name_the_job_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "ctld.log").write_text(CONTROLLER)
    (tmp_path / "n1.log").write_text(NODE)
    settings = {"SlurmctldLogFile": f"{tmp_path}/ctld.log", "SlurmdLogFile": f"{tmp_path}/%n.log"}
    files = log_files(settings, ["n1", "n2"])
    assert ["slurmctld", "slurmd n1", "slurmd n2"] == [name for name, _path in files]
    assert (
        "slurmctld: [2026-11-16T19:00:00.1] _slurm_rpc_submit_batch_job: JobId=17 InitPrio=1 usec=600",
        "slurmctld: [2026-11-16T19:00:01.2] sched: Allocate JobId=17 NodeList=n1 #CPUs=1 Partition=gpu",
        "slurmctld: [2026-11-16T19:00:03.4] _job_complete: JobId=17 WEXITSTATUS 0",
        "slurmd n1: [2026-11-16T19:00:01.3] Launching batch job 17 for UID 1001",
        "slurmd n1: [2026-11-16T19:00:01.4] [17.batch] task_p_pre_launch: \\x1b[31mUsing sched_affinity",
    ) == find_lines(files, ["17"])
    assert 1 == len(find_lines(files, ["17_3"]))
    assert () == find_lines(files, [])
    assert [] == log_files({"SlurmctldLogFile": "(null)"}, ["n1"]), "they go to syslog"


def test_few_lines_of_the_end_of_a_log_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "JobId=17 first\n" + "x" * 99 * (TAIL_BYTES // 99) + "\n" + "JobId=17 " + "y" * 5000 + "\n"
    )
    (line,) = find_lines([("slurmctld", str(path))], ["17"])
    assert len("slurmctld: ") + LINE_CHARS + 1 == len(line)
    path.write_text("JobId=17 again\n" * 1000)
    assert LINES_MAX == len(find_lines([("slurmctld", str(path))], ["17"]))
