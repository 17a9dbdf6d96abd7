"Rows of numbers in files: the type of a column, and its rows by their number."
import hashlib

import numpy as np
import pyarrow as pa
import pytest

from loflexmdm.support.shards import BLOCK, HashingFile, Rows, ShardWriter, bits_for


@pytest.mark.parametrize("most, bits", [
    (0, 8), (255, 8), (256, 16), (2**16 - 1, 16), (2**16, 32), (2**32 - 1, 32),
])
def test_a_column_has_the_narrowest_type(most, bits): assert bits_for(most) == bits


def test_every_row_is_that_of_its_number_in_whichever_file_and_block(tmp_path):
    "A file takes `size` rows and a block more at most; a larger number begins a wider one."
    rows = [[i % 256, 7] for i in range(2 * BLOCK + 3)] + [[300 + i] for i in range(BLOCK)] + [[]]
    writer = ShardWriter(tmp_path, "a", BLOCK)
    for row in rows: writer.add(row)
    writer.close()

    kept = Rows(tmp_path, writer.shards)
    assert [s.rows for s in writer.shards] == [BLOCK, BLOCK, BLOCK, 4] and len(kept) == len(rows)
    assert [kept[i].tolist() for i in range(len(rows))] == rows == [row.tolist() for row in kept]
    assert [kept[i].dtype for i in (0, len(rows) - 1)] == [np.uint8, np.uint16]
    for wrong in (-1, len(rows)):
        with pytest.raises(IndexError, match=f"row {wrong} is out of range for {len(rows)} rows"): kept[wrong]


@pytest.mark.parametrize("most, files", [(255, 1), (256, 2)])
def test_a_file_goes_on_while_its_type_holds_the_numbers(tmp_path, most, files):
    writer = ShardWriter(tmp_path, "a", 10 * BLOCK)
    for row in [[0]] * BLOCK + [[most]] * BLOCK: writer.add(row)
    writer.close()
    assert len(writer.shards) == files and Rows(tmp_path, writer.shards)[2 * BLOCK - 1].tolist() == [most]


@pytest.mark.parametrize("most, kind", [(255, pa.uint8()), (2**16 - 1, pa.uint16()), (2**32 - 1, pa.uint32())])
def test_files_are_those_that_pyarrow_makes_of_lists(tmp_path, most, kind):
    "So blocks are built at once, whatever their rows: empty ones, a whole block of them, and an incomplete block."
    rows = [[most, 0, 1]] + [[]] * (2 * BLOCK) + [[7] * 300, [most]]
    writer = ShardWriter(tmp_path, "a")
    for row in rows: writer.add(iter(row))
    writer.close()
    with pa.OSFile(str(tmp_path / "b"), "w") as file, pa.ipc.new_file(file, pa.schema([("tokens", pa.list_(kind))])) as f:
        for i in range(0, len(rows), BLOCK):
            f.write_batch(pa.record_batch([pa.array(rows[i:i + BLOCK], pa.list_(kind))], ["tokens"]))
    assert (tmp_path / "b").read_bytes() == (tmp_path / writer.shards[0].name).read_bytes()


def test_a_file_that_hashes_knows_whether_it_is_closed(tmp_path):
    file = HashingFile(tmp_path / "a")
    file.write(b"one")
    assert not file.closed
    file.close()
    assert file.closed and file.hash.digest() == hashlib.sha256((tmp_path / "a").read_bytes()).digest()
