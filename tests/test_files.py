import pytest

from capi.errors import InvalidInput
from capi.files import result_folder, write_text, written_whole


def test_a_file_appears_whole(tmp_path):
    write_text(tmp_path / "a.txt", "one\ntwo\n")
    assert (tmp_path / "a.txt").read_bytes() == b"one\ntwo\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def write_half(path):
    with written_whole(path) as beside:
        beside.write_text("half")
        raise RuntimeError("the disk is full")


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError):
        write_half(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_result_folder_is_made_with_its_parents(tmp_path):
    assert result_folder(tmp_path / "a" / "b").is_dir()
    assert result_folder(tmp_path / "a" / "b").is_dir(), "a second time is fine"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"file.*must be a folder, but a file is in the way"):
        result_folder(tmp_path / place)
