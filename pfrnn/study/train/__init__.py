"""The population engine: blocks of members trained side by side."""
