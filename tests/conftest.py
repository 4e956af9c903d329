"""Parts of the world that tests of several packages need."""

pytest_plugins = ("rigs.postgres", "rigs.slurm", "rigs.oidc")
