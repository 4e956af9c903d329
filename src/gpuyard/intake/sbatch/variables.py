"""Variables in which Slurm gives a job the options of its script; `srun` in the job reads some of them as options."""

from collections.abc import Mapping

from gpuyard.intake.sbatch.layers import Setting
from gpuyard.intake.sbatch.reading import Reading

_MEMORY = {
    "mem": "SLURM_MEM_PER_NODE",
    "mem-per-cpu": "SLURM_MEM_PER_CPU",
    "mem-per-gpu": "SLURM_MEM_PER_GPU",
}
_AS_WRITTEN = {
    "account": "SLURM_JOB_ACCOUNT", "qos": "SLURM_JOB_QOS", "partition": "SLURM_JOB_PARTITION",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE", "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "ntasks-per-core": "SLURM_NTASKS_PER_CORE", "ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET",
    "gpus-per-node": "SLURM_GPUS_PER_NODE", "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "gpus-per-socket": "SLURM_GPUS_PER_SOCKET", "cpus-per-gpu": "SLURM_CPUS_PER_GPU", "gpu-bind": "SLURM_GPU_BIND",
    "hint": "SLURM_HINT", "distribution": "SLURM_DISTRIBUTION", "threads-per-core": "SLURM_THREADS_PER_CORE",
    "dependency": "SLURM_JOB_DEPENDENCY", "export": "SLURM_EXPORT_ENV",
}  # fmt: skip


def variables(reading: Reading, settings: Mapping[str, Setting]) -> dict[str, str]:
    """The variables, by the options that were given."""
    found = {
        variable: settings[option].value for option, variable in _AS_WRITTEN.items() if option in settings
    }
    if "," in found.get("SLURM_JOB_PARTITION", ""):
        # With several partitions, Slurm sets the one where the job runs.
        del found["SLURM_JOB_PARTITION"]
    if reading.memory_mib:
        found[_MEMORY[reading.memory_per]] = str(reading.memory_mib)
    if reading.overcommit:
        found["SLURM_OVERCOMMIT"] = "1"
    return found
