"""What an image or environment holds, as JSON on standard output: packages, and one hash over all files.

Usage: python inventory.py FOLDER...
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import sys


def files(folder: str) -> list[str]:
    return sorted(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)


def main() -> None:
    total = hashlib.sha256()
    for folder in sys.argv[1:]:
        for path in files(folder):
            if os.path.islink(path):
                digest = "link to " + os.readlink(path)
            else:
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(f"{path}\0{os.lstat(path).st_mode:o}\0{digest}\n".encode())
    packages = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    json.dump(
        {
            "content": total.hexdigest(),
            "packages": dict(sorted(packages.items())),
            "python": platform.python_version(),
        },
        sys.stdout,
    )


main()
