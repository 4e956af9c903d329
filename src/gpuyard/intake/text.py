"""From bytes to text, for files that may be anything: what cannot be a job is refused before it is parsed."""

from gpuyard.errors import BadInput

BYTES_MAX = 8 * 1024 * 1024
REPLACED = "\ufffd"
"""The replacement, in a comment, for a byte that is not UTF-8."""


def decode(content: bytes, file: str) -> str:
    """The text of a file, or `BadInput` with the first line that is not text."""
    if len(content) > BYTES_MAX:
        raise BadInput(f"{file}: larger than {BYTES_MAX // 1024**2} MiB, the limit; is it the right file?")
    nul = content.find(b"\0")
    if nul >= 0:
        number = content.count(b"\n", 0, nul) + 1
        raise BadInput(f"{file}:{number}: holds a NUL character: it is a program or data, not text")
    script, before = content.startswith(b"#!"), 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        at = _not_text(line)
        # Old scripts have names in Latin-1 in their comments, and Slurm accepts them.
        if at >= 0 and not (script and _is_comment(line)):
            raise BadInput(
                f"{file}:{number}: byte {before + at + 1} of the file, 0x{line[at]:02x}, is not UTF-8",
                f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {file}",
            )
        before += len(line) + 1
    return content.decode("utf-8", "replace")


def _not_text(line: bytes) -> int:
    """The position of the first byte that is not UTF-8; -1: there is none."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return -1


def _is_comment(line: bytes) -> bool:
    """Whether neither the interpreter nor sbatch reads a line of a script."""
    return line.lstrip().startswith(b"#") and not line.startswith((b"#!", b"#SBATCH"))
