"""What a package index shows of gpuyard: README.md, without what leads nowhere there (a metadata hook of hatch).

An index has neither our pictures nor our pages: a picture is left out, and of a link to a page its text stays.
"""

import re
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[1] / "README.md"
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://)[^)]*\)")


def description(text: str) -> str:
    """The text with links to other places alone."""
    return _LINK.sub(r"\1", _PICTURE.sub("", text))


def get_metadata_hook() -> Any:
    """For hatch."""
    from hatchling.metadata.plugin.interface import MetadataHookInterface  # noqa: PLC0415

    class DescriptionHook(MetadataHookInterface):
        """The long description of wheel and sdist."""

        def update(self, metadata: dict[str, Any]) -> None:
            text = description(README.read_text(encoding="utf-8"))
            metadata["readme"] = {"content-type": "text/markdown", "text": text}

    return DescriptionHook
