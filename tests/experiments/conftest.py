"""What tests with the toy experiment share."""

import pytest

import toy_experiment as toy


@pytest.fixture
def toy_folder(tmp_path, monkeypatch):
    """Return the folder through which a test talks to the runs of the toy experiment."""
    folder = tmp_path / "toy"
    folder.mkdir()
    monkeypatch.setattr(toy, "folder", folder)
    return folder
