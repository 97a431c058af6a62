"""What a suite will take, before anything is spent; and afterwards, what it took."""
