import pytest

from capi.errors import InvalidInput
from capi.files import result_folder, written_together


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
    with pytest.raises((RuntimeError, KeyboardInterrupt, InvalidInput)) as caught:
        write(tmp_path, failing)
    assert contents(tmp_path) == {"a.txt": "old a"}
    if isinstance(failing, OSError):
        assert "No space left on device" in str(caught.value)


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path):
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(InvalidInput, match=r"b.txt must be a file, but a folder is in the way"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_a_result_folder_is_made_with_its_parents(tmp_path):
    assert result_folder(tmp_path / "a" / "b").is_dir()
    assert result_folder(tmp_path / "a" / "b").is_dir(), "a second time is fine"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"file.*must be a folder, but a file is in the way"):
        result_folder(tmp_path / place)


def test_a_folder_without_a_name_is_refused():
    with pytest.raises(InvalidInput, match="must have a name"):
        result_folder("")
