"""What all records are made of: names, numbers with bounds, seals, fingerprints."""

from typing import Annotated

from msgspec import Meta, Struct

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@-]*$", max_length=120)]
"""An id that is also a folder's name."""
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Bounded to what every JSON reader holds exactly."""
Positive = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Text = Annotated[str, Meta(max_length=1_000_000)]
Measurement = Annotated[float, Meta(ge=-1e300, le=1e300)]
"""A finite number."""

MAX_LINE_BYTES = 8 * 1024 * 1024
"""The longest line that is read from a container; a longer one is refused without being held in memory."""


class Record(Struct, forbid_unknown_fields=True, frozen=True):
    """Base of all records: immutable, and an unknown field is an error."""


class Sealed(Record, frozen=True, kw_only=True):
    """A record that shows when it has been changed after it was written (`upkeep.integrity`)."""

    seal: Sha256 | None = None
    """Hash of all that the record says besides; null only before it is written."""


class Fingerprint(Record, frozen=True, kw_only=True):
    """What a file is, so that another one in its place shows."""

    size: Count
    """Bytes: another size is noticed without reading the file."""
    sha256: Sha256
