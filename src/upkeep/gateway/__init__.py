"""Between methods and models, on the host: every question to an engine goes through here, and every reply is kept.

`record` keeps replies by content, `engines` says which engine they are of, `cells` serves one container; `endpoints`
asks models elsewhere.
"""
