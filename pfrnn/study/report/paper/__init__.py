"""The paper's printed numbers (README.md names the source)."""
