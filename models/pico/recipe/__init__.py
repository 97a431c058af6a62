"""How `pico` is made: a small language model, trained from scratch on small worlds of the datasets' own builders."""
