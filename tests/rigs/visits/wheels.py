"""Wheels of this package as they could have been released, and environments in which pip installs them."""

import hashlib
import subprocess
import sys
import sysconfig
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import gpuyard

SOURCE = Path(gpuyard.__file__).parent


def wheel(folder: Path, version: str, behind: Mapping[str, str], source: Path = SOURCE) -> Path:
    """A wheel of the package with this version. `behind`: what stands behind the text of a file in it."""
    about = f"gpuyard-{version}.dist-info"
    files = {
        f"gpuyard/{path.relative_to(source)}": path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name, text in behind.items():
        files[f"gpuyard/{name}"] += text.encode()
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: gpuyard\nVersion: {version}\n".encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*rows, f"{about}/RECORD,,", ""]).encode()
    path = folder / f"gpuyard-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return path


def _digest(text: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()


class Environment:
    """A virtual environment: what the package needs is that of the tests, the package itself is its own."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    def install(self, path: Path) -> None:
        """Install a wheel as people do, in place of an earlier one."""
        words = [
            "-m",
            "pip",
            "--python",
            self.python,
            "install",
            "--upgrade",
            "--no-deps",
            "--no-index",
            path,
        ]
        subprocess.run([sys.executable, *words], check=True, capture_output=True)

    def version(self) -> str:
        """The version that a program started now has."""
        told = "from importlib.metadata import version; print(version('gpuyard'))"
        done = subprocess.run([self.python, "-I", "-c", told], check=True, capture_output=True, text=True)
        return done.stdout.strip()
