"""A digest of Snakemake's metadata: which outputs were made, from what, with what parameters."""

from __future__ import annotations

from pathlib import Path

from pfrnn.study.files import digest_of, sha256_file

METADATA = Path(".snakemake") / "metadata"


def metadata_digest(folder: Path | str = ".") -> str:
    """Return the digest of all records below ``.snakemake/metadata``; the same in every clone."""
    root = Path(folder) / METADATA
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return digest_of({path.relative_to(root).as_posix(): sha256_file(path) for path in files})


if __name__ == "__main__":
    print(metadata_digest())
