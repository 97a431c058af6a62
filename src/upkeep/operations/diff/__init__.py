"""What differs between two cells, two suites, or two results folders."""
