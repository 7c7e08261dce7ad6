"""A file is whole or absent, links lead on, and what is no file is written into."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from experiments import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    for content in ("one", "two"):
        files.write(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "file").read_text() == content
    assert names(tmp_path) == ["link", "there"] and names(tmp_path / "there") == ["file"]


def test_a_pipe_is_written_into(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    files.write(tmp_path / "pipe", "a page")
    reader.join(10)
    assert got == ["a page"] and names(tmp_path) == ["pipe"]


@pytest.mark.parametrize("into", ["a pipe", "a file"])
def test_standard_output_keeps_what_was_printed(tmp_path, into):
    code = (
        "from pathlib import Path; from experiments import files; out = Path('/dev/stdout')\n"
        "print('before'); files.write(out, 'page\\n'); print('after', files.is_printed_into(out))"
    )
    with open(tmp_path / "out", "w+") as file:
        where = subprocess.PIPE if into == "a pipe" else file
        done = subprocess.run([sys.executable, "-c", code], stdout=where, text=True, check=True)
        file.seek(0)
        said = done.stdout if into == "a pipe" else file.read()
    assert said == "before\npage\nafter True\n"


def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError) as caught:
        files.write(tmp_path / "nowhere" / "page.html", "x")
    assert str(caught.value).endswith(f"No such file or directory: '{tmp_path}/nowhere/page.html'")
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        files.write(tmp_path, "x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match=r"loop'$"):
        files.write(tmp_path / "loop", "x")
    assert names(tmp_path) == ["loop"]

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/page.html'$"):
        files.write(tmp_path / "page.html", "x")
    assert names(tmp_path) == ["loop"]


def test_a_name_may_be_as_long_as_names_are(tmp_path):
    files.write(tmp_path / ("n" * 250), "x")
    assert names(tmp_path) == ["n" * 250]


@pytest.mark.parametrize("digits", ["1" + 400 * "0", "-1e400", "1" + 5000 * "0", "1e200"])
def test_a_number_beyond_what_is_measured_is_refused(digits):
    with pytest.raises(ValueError, match=r"is not accepted; numbers are below 1e\+100"):
        files.parsed(f'{{"a": [{digits}]}}')


def test_half_a_character_is_printed_as_its_number():
    assert files.printable({"\ud800": ["a\udcff", "早", 1, None]}) == {"\\ud800": ["a\\udcff", "早", 1, None]}
