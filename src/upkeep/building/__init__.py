"""What the builders of datasets share."""
