"""What people ask about runs: how far they are, what they cost, what a machine lacks, what a cell answered.

Each package or module is what the command of its name answers; `needs` is what several of them ask of jobs.
"""
