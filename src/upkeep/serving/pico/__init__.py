"""`pico`: a small language model of ours, trained from scratch on small worlds of the datasets' own builders."""
