"""The builders that any family may name as its `builder`: each is a module with `build`, as a family's folder is."""
