"""The fast GPU step, behind the same functions as the reference."""
