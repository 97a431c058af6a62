"""Counts what cells would ask of their models, by running their methods against an engine that runs none.

A method is run as a cell runs, isolated, in its own image, over a sample of the dataset's rounds, and what it asks for
is laid out over the whole dataset. So a new method is planned like any other, with nothing declared about it. Counts
are kept in `results/plans/counts/`, each under the hash of all that it depends on.

Tokens are those of the model's own tokenizer where it is at hand and the dataset is counted whole. Else bytes are
counted, at the rate that the model's tokenizer has on the dataset's documents, or, without it, the dataset's own.
"""
