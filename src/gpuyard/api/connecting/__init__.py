"""What the client stands on: which yard it speaks to, HTTP, and what comes back."""
