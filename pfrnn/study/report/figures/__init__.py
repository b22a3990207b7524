"""The report's figures: one idea a module, one style for all."""
