"""Check a built sdist and wheel: the sdist has what git tracks, and the wheel works in an empty environment, outside the project.

python scripts/check_package.py dist
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPY = "import shutil; from capi.datasets import clinic_table; shutil.copy(clinic_table(), 'visits.csv')"
COMMANDS = [
    ["--version"],
    ["init", "visits.csv"],
    ["fit"],
    ["evaluate", "run"],
    ["report", "run"],
    ["predict", "run", "visits.csv", "--out", "decisions.csv"],
]


def missing(sdist):
    """Return the tracked files that a sdist lacks."""
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return sorted(set(tracked) - held)


def try_wheel(wheel):
    """Install a wheel into an empty environment, and go from a table to decisions."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        scripts = place / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", wheel], check=True)
        subprocess.run([scripts / "python", "-c", COPY], check=True, cwd=place)
        for command in COMMANDS:
            done = subprocess.run([scripts / "capi", *command], cwd=place, capture_output=True, text=True, check=False)
            print(f"capi {' '.join(command)}: {'ok' if done.returncode == 0 else done.stderr}")
            if done.returncode:
                return False
        return (place / "decisions.csv").exists() and (place / "run" / "report.html").exists()


if __name__ == "__main__":
    dist = Path(sys.argv[1]).resolve()
    [sdist], [wheel] = dist.glob("*.tar.gz"), dist.glob("*.whl")
    lacking = missing(sdist)
    print("\n".join(f"the sdist lacks {name}" for name in lacking) or f"{sdist.name} is complete")
    sys.exit(bool(lacking) or not try_wheel(wheel))
