"""Tables, figures, claims and the HTML report; imports no torch."""
