"""upkeep: do language models keep up with changing knowledge? Every baseline of five papers, one command."""

__version__ = "0.1.0"
