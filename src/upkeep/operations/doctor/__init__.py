"""What this machine has, what each missing thing rules out, and the remedy; and so, which suites can run here."""
