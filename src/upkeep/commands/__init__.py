"""What each command of `./upkeep` does. Nothing heavy is imported before it is needed."""
