"""A cache of machine code that cannot be read or written costs time and one sentence, never a result."""

import errno
import os
import warnings
from importlib.util import module_from_spec, spec_from_file_location

import numba
import pytest

from capi._utils import compiling, kernel_cache
from capi.errors import KernelCacheWarning

pytestmark = pytest.mark.compiled
KERNEL = """
from capi._utils.compile import compiled

@compiled
def double(number):
    return 2 * number
"""


class Place:
    """A module with one kernel, and the folders in which its machine code may be stored."""

    def __init__(self, folder):
        self.source = folder / "package" / "tiny.py"
        self.source.parent.mkdir()
        self.source.write_text(KERNEL)
        self.beside = self.source.parent / "__pycache__"
        self.home = folder / "home"

    def call(self):
        """Import the module anew, as a new process does; return the result, the hits, the sentences and the folder."""
        kernel_cache._warned = compiling._said = False
        spec = spec_from_file_location("tiny", self.source)
        module = module_from_spec(spec)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spec.loader.exec_module(module)
            results = module.double(3), module.double(1.5)
        hits = sum(module.double.stats.cache_hits.values())
        assert all(warning.category is KernelCacheWarning for warning in caught)
        return results, hits, [str(warning.message) for warning in caught]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kernel_cache, "_warned", False)
    monkeypatch.setattr(compiling, "_said", False)
    return Place(tmp_path)


def in_the_way(path):
    """Put a file where a folder would be: permissions do not stop root."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("a file")


def test_a_sound_cache_is_used_without_a_word(place):
    assert place.call() == ((6, 3.0), 0, [])
    assert place.call() == ((6, 3.0), 2, [])


def emptied(file):
    file.write_bytes(b"")


def truncated(file):
    file.write_bytes(file.read_bytes()[:-100])


def damaged(file):
    """Change one bit of what would be run."""
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents)


@pytest.mark.parametrize("harm", [emptied, truncated, damaged])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_file_that_cannot_be_read_is_discarded_with_one_sentence(place, harm, suffix):
    place.call()
    for file in place.beside.glob(f"*.{suffix}"):
        harm(file)
    results, hits, (sentence,) = place.call()
    assert (results, hits) == ((6, 3.0), 0)
    assert "truncated or damaged" in sentence
    assert "NUMBA_CACHE_DIR" in sentence
    assert str(place.beside) in sentence
    assert place.call() == ((6, 3.0), 2, []), "the next process finds a sound cache"


def test_without_a_writable_folder_kernels_are_compiled_in_each_process(place):
    in_the_way(place.beside)
    in_the_way(place.home)
    for _ in range(2):
        results, hits, (sentence,) = place.call()
        assert (results, hits) == ((6, 3.0), 0)
        assert sentence.startswith(f"machine code cannot be stored in {place.beside} (File exists).")
        assert "NUMBA_CACHE_DIR" in sentence


def test_a_user_without_a_home_gets_no_folder_named_after_the_tilde(place, monkeypatch, tmp_path):
    in_the_way(place.beside)
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")  # what expanduser returns for an unknown user
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    assert len(place.call()[2]) == 1
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("full", [".nbi", ".nbc"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(place, monkeypatch, full):
    class FullDisk:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened = kernel_cache.CheckedFiles._open_for_write

    def open_for_write(self, path):
        context = opened(self, path)
        entered = context.__enter__
        context.__class__ = type(
            "Full", (type(context),), {"__enter__": lambda _: FullDisk(entered()) if path.endswith(full) else entered()}
        )
        return context

    with monkeypatch.context() as patch:
        patch.setattr(kernel_cache.CheckedFiles, "_open_for_write", open_for_write)
        results, hits, (sentence,) = place.call()
    assert (results, hits) == ((6, 3.0), 0)
    assert "No space left on device" in sentence
    assert "NUMBA_CACHE_DIR" in sentence
    assert not list(place.beside.glob("*.tmp.*"))
    assert place.call()[2] == [], "with space again, there is nothing to say"
    assert place.call() == ((6, 3.0), 2, [])


@pytest.mark.parametrize("kind", ["a file", "below a file"])
def test_a_cache_dir_that_is_not_a_folder_is_named(place, monkeypatch, tmp_path, kind):
    in_the_way(tmp_path / "chosen")
    chosen = tmp_path / "chosen" / ("below" if kind == "below a file" else "")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(chosen))
    results, _, (sentence,) = place.call()
    assert results == (6, 3.0)
    assert sentence.startswith(f"NUMBA_CACHE_DIR is set to {chosen}, which is not a writable folder.")
    assert place.call() == ((6, 3.0), 2, []), "kept next to the source; nothing is compiled, nothing is said"


def test_a_cache_dir_that_does_not_exist_is_created(place, monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "new" / "cache"))
    assert place.call() == ((6, 3.0), 0, [])
    assert place.call() == ((6, 3.0), 2, [])
    assert len(list((tmp_path / "new" / "cache").rglob("*.nbc"))) == 2


@pytest.mark.parametrize("home", [True, False])
def test_a_read_only_folder_is_read(place, monkeypatch, home):
    """Machine code in an image: its user cannot write next to the sources, and may have no home."""
    place.call()
    writable = kernel_cache.InTreeCacheLocator.ensure_cache_path

    def read_only(locator):
        if locator.get_cache_path() == str(place.beside):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        writable(locator)

    monkeypatch.setattr(kernel_cache.InTreeCacheLocator, "ensure_cache_path", read_only)
    if not home:
        in_the_way(place.home)
    assert place.call() == ((6, 3.0), 2, [])
    place.source.write_text(KERNEL.replace("2 *", "3 *") + "\n")
    for file in place.beside.glob("*.nbi"):
        file.unlink()
    results, hits, sentences = place.call()
    assert (results, hits, len(sentences)) == ((9, 4.5), 0, 0 if home else 1)
    if not home:
        assert f"machine code cannot be stored in {place.beside} (Permission denied)" in sentences[0]
    assert place.call()[1] == (2 if home else 0)


def test_data_of_another_signature_is_not_used(place):
    """Two processes that save at the same time may choose the same name."""
    place.call()
    first, second = sorted(place.beside.glob("*.nbc"))
    second.write_bytes(first.read_bytes())
    assert place.call() == ((6, 3.0), 1, [])


def test_compilation_is_announced_once_and_only_if_something_is_compiled(place):
    said = []
    with compiling.announced(said.append):
        place.call()
    assert said == [f"compiling (once, about {compiling.SECONDS} s)"]
    with compiling.announced(said.append):
        place.call()
    assert len(said) == 1
    in_the_way(place.home)
    for file in place.beside.iterdir():
        file.unlink()
    place.beside.rmdir()
    in_the_way(place.beside)
    with compiling.announced(said.append):
        place.call()
    assert said[1] == f"compiling (about {compiling.SECONDS} s)", "not once: it cannot be stored"
