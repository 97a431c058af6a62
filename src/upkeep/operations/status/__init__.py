"""How far a suite is: from what is published, from the statuses that jobs write, and from the batch system's queue.

The jobs themselves are not asked, so this works from every machine that sees the results folder, at any time. What is
published is verified as it is for scoring (`published.read_published`).
"""
