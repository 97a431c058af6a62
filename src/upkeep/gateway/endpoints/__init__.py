"""Models behind OpenAI-compatible endpoints: what is sent, what it costs, what is kept.

`client` asks and tries again, `ledger` holds the budget, `replies` keeps every answer. `server` is the way from a
cell's container to them.
"""
