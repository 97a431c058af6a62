"""What containers and environments are made of: locked packages, images of Docker and Podman, SIF files."""
