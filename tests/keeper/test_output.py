"""Output on disk: bounded, and read by absolute offset."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keeper.output import Chunk, Output, read_output


def written(folder: Path, data: bytes, bytes_max: int, piece: int = 7) -> None:
    output = Output(folder, "stdout", bytes_max)
    for at in range(0, len(data), piece):
        output.write(data[at : at + piece])
    output.close()


def test_nothing_is_made_before_the_first_byte(tmp_path):
    Output(tmp_path, "stdout", 100).close()
    assert list(tmp_path.iterdir()) == []
    assert read_output(tmp_path, "stdout", 3, 10) == Chunk(3, b"", 0)
    assert read_output(tmp_path / "never", "stdout", 0, 10) == Chunk(0, b"", 0)


@given(
    length=st.integers(0, 300),
    bytes_max=st.integers(2, 400),
    piece=st.integers(1, 50),
    offset=st.integers(0, 320),
    limit=st.integers(1, 320),
)
def test_what_is_read_is_what_was_written_there(
    tmp_path_factory, length, bytes_max, piece, offset, limit
):
    folder = tmp_path_factory.mktemp("output")
    data = bytes(n % 251 for n in range(length))
    written(folder, data, bytes_max, piece)
    chunk = read_output(folder, "stdout", offset, limit)
    kept = sum(path.stat().st_size for path in folder.iterdir())
    oldest = length - kept
    assert kept <= bytes_max
    assert kept >= min(length, bytes_max // 2)
    assert chunk.total == length
    assert chunk.first == max(offset, oldest)
    assert chunk.data == data[chunk.first : chunk.first + limit]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_streams_do_not_mix(tmp_path, stream):
    for name in ("stdout", "stderr"):
        output = Output(tmp_path, name, 100)
        output.write(name.encode())
        output.close()
    assert read_output(tmp_path, stream, 0, 100).data == stream.encode()
