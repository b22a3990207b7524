"""The data sets: cards, raw files, protocols, prepared arrays."""
