"""The host's side of a cell: what starts, feeds, watches, validates and publishes it."""
