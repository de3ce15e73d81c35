import subprocess
import sys

import pytest

from capi.errors import InvalidInputError
from capi.files.atomic import result_folder, write_text, written_together, written_whole
from capi.files.lock import locked


def write(folder, failing=None):
    with written_together(folder, ["a.txt", "b.txt"]) as places:
        places["a.txt"].write_text("new a")
        if failing:
            raise failing
        places["b.txt"].write_text("new b")


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_appear_whole_and_together(tmp_path):
    (tmp_path / "a.txt").write_text("old a")
    write(tmp_path)
    assert contents(tmp_path) == {"a.txt": "new a", "b.txt": "new b"}


@pytest.mark.parametrize(
    "failing", [RuntimeError("a bug"), KeyboardInterrupt(), OSError(28, "No space left on device")]
)
def test_what_fails_leaves_the_old_files_and_nothing_else(tmp_path, failing):
    (tmp_path / "a.txt").write_text("old a")
    with pytest.raises((RuntimeError, KeyboardInterrupt, InvalidInputError)) as caught:
        write(tmp_path, failing)
    assert contents(tmp_path) == {"a.txt": "old a"}
    if isinstance(failing, OSError):
        assert "No space left on device" in str(caught.value)


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path):
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(InvalidInputError, match=r"b.txt must be a file, but a folder of that name exists"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_a_result_folder_is_made_with_its_parents(tmp_path):
    assert result_folder(tmp_path / "a" / "b").is_dir()
    assert result_folder(tmp_path / "a" / "b").is_dir(), "a second time is fine"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"file.*must be a folder, but it or a parent of it is a file"):
        result_folder(tmp_path / place)


def test_a_folder_without_a_name_is_refused():
    with pytest.raises(InvalidInputError, match="must have a name"):
        result_folder("")


def fail_after(_):
    raise OSError(28, "the disk is full")


def test_one_file_is_written_with_its_folder_and_the_same_line_ends(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "one\ntwo ü\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "one\ntwo ü\n".encode()
    with pytest.raises(InvalidInputError, match="full"), written_whole(tmp_path / "a" / "b.txt") as place:
        fail_after(place.write_text("half"))
    assert contents(tmp_path / "a") == {"b.txt": "one\ntwo ü\n"}


def busy(holder):
    return f"{holder} is at work"


HOLDING = """
import sys, time
from pathlib import Path
from capi.files.lock import locked
with locked(Path(sys.argv[1]), str):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_keeps_another_process_out_and_says_who_holds_it(tmp_path):
    lock = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDING, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InvalidInputError, match=f"{holder.pid} is at work"), locked(lock, busy):
        pass
    with pytest.raises(InvalidInputError, match=f"{holder.pid} is at work"), locked(lock, busy):
        pass  # the first refusal left the lock and the name of its holder alone
    holder.kill()
    holder.communicate()
    with locked(lock, busy):  # the system frees it
        assert lock.exists()
    assert contents(tmp_path) == {}


def test_a_lock_is_not_given_twice_in_one_process_and_is_free_after_a_failure(tmp_path):
    with locked(tmp_path / ".lock", busy), pytest.raises(InvalidInputError, match="is at work"):
        locked(tmp_path / ".lock", busy).__enter__()
    with pytest.raises(OSError, match="full"), locked(tmp_path / ".lock", busy):
        fail_after(0)
    with locked(tmp_path / ".lock", busy):
        pass
    assert contents(tmp_path) == {}


def test_a_lock_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(InvalidInputError, match="cannot be written"), locked(tmp_path / ".lock", busy):
        pass
