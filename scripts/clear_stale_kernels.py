"""Remove compiled kernels that are older than any of the sources.

numba keeps the machine code of a function until the file that it stands in changes; it does not see that a function which it calls,
in another file, has changed. So after an update everything older than the newest source goes, and is compiled anew.
"""

from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src"


def main():
    newest = max(path.stat().st_mtime for path in SOURCES.rglob("_*.py"))
    compiled = [path for kind in ("*.nbi", "*.nbc") for path in SOURCES.rglob(kind)]
    if any(path.stat().st_mtime < newest for path in compiled):
        for path in compiled:
            path.unlink(missing_ok=True)
        print("the sources of kernels have changed: they are compiled anew on their next call")


if __name__ == "__main__":
    main()
