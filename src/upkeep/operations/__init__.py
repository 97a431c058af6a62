"""What people ask about runs: how far they are, what they cost, what a machine lacks, what a cell answered."""
