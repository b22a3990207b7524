"""Tables, figures, claims and the page, from tidy files; imports no torch.

results/<tier> -> ``collect`` -> evidence (results.csv, data/) -> ``cells`` (ours beside the
paper's, ``verdicts``), ``summary_table`` (table 3), ``claims`` -> ``tables``, ``figures``,
``page``. Only ``collect`` reads a tier's folders; everything else is a function of the evidence,
so that ``check`` can render it again and compare.
"""
