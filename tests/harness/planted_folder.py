"""A folder in which somebody has put modules with the names of ours and of Python's; each says that it was run."""

import sys
from pathlib import Path

_CODE = "import os\nopen({told!r}, 'a').write(__name__ + ' ' + str(os.geteuid()) + '\\n')\n"


class PlantedFolder:
    """The folder."""

    def __init__(self, above: Path) -> None:
        self.path, self._told = above / "planted", above / "told"
        self.path.mkdir()
        for name in (
            "gpuyard",
            "yaml",
            "pydantic",
            "uvicorn",
            "usercustomize",
            *sorted(sys.stdlib_module_names),
        ):
            (self.path / f"{name}.py").write_text(_CODE.format(told=str(self._told)), encoding="utf-8")

    def ran(self) -> list[str]:
        """The modules of it that were run, and as which user."""
        return self._told.read_text(encoding="utf-8").splitlines() if self._told.exists() else []
