"""What the suite asks of the machine that it runs on: processes and their ends, limits, scratch folders."""
