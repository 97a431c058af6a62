"""A suite set against what a release recorded of it: `./upkeep review`."""
