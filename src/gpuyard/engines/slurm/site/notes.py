"""What one side can express and the other cannot, and what was guessed: never dropped in silence."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Notes:
    """Sentences in the order they came up, each once."""

    unsaid: dict[str, None] = field(default_factory=dict)
    """What the other side cannot express."""
    guessed: dict[str, None] = field(default_factory=dict)
    """What had to be guessed."""

    def leave(self, text: str) -> None:
        """Something that cannot be said."""
        self.unsaid[text] = None

    def guess(self, text: str) -> None:
        """Something that was assumed."""
        self.guessed[text] = None

    def __len__(self) -> int:
        return len(self.unsaid) + len(self.guessed)

    def text(self, head: str) -> str:
        """All of them, for a file beside the others."""
        lines = [head, ""]
        for title, found in (("Cannot be said", self.unsaid), ("Guessed", self.guessed)):
            if found:
                lines += [f"{title}:", *[f"  - {text}" for text in found], ""]
        if not len(self):
            lines += ["Nothing is left out and nothing was guessed.", ""]
        return "\n".join(lines)
