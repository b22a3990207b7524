"""The reproduction: data, training, evaluation, report; it stands on the library."""
