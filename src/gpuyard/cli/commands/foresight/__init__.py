"""Commands that simulate: policies on recorded jobs, and the demo."""
