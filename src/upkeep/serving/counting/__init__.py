"""An engine that runs no model: it counts what methods ask for. Plans are made with it, before anything is spent.

The method itself runs, over some of a dataset's rounds; its prompts are tokenised as for a real engine, and of each
one it is noted how much an engine of the model's kind would have computed anew. An answer comes at once: words without
meaning, as many tokens as are assumed. No weights are read, and dense retrieval works with hashed words in place of an
embedder.

    python -m upkeep.serving.counting JOBS.JSON COUNTS.JSON [METHODS-FOLDER]
"""
