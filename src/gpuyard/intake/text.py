"""From bytes to text, for files that may be anything: what cannot be a job is refused before it is looked into."""

from gpuyard.errors import BadInput

BYTES_MAX = 8 * 1024 * 1024


def decode(content: bytes, file: str) -> str:
    """The text of a file, or `BadInput` with the first line that is none."""
    if len(content) > BYTES_MAX:
        raise BadInput(f"{file}: larger than {BYTES_MAX // 1024**2} MiB, the limit; is it the right file?")
    nul = content.find(b"\0")
    if nul >= 0:
        line = content.count(b"\n", 0, nul) + 1
        raise BadInput(f"{file}:{line}: holds a NUL character: it is a program or data, not text")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{file}:{line}: byte {error.start + 1} of the file, 0x{content[error.start]:02x}, is not UTF-8",
            f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {file}",
        ) from None
