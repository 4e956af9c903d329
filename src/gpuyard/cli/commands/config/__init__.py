"""Commands about yard.yaml: check, compare, apply, go back."""
