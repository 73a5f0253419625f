"""Readings of sensors in Python, through lvldb: a binding for LevelDB's C interface that knows nothing of Waystation.

    pip install lvldb
    LD_LIBRARY_PATH=<a directory with libwaystation.so as libleveldb.so.1d> python3 readings.py DIRECTORY
"""

import ctypes.util
import sys

if ctypes.util.find_library("leveldb") is None:
    # The system has no LevelDB to ask for; the one on the search path is it.
    ctypes.util.find_library = lambda name: f"lib{name}.so"

import lvldb

directory = sys.argv[1]
db = lvldb.DB(directory, create_if_missing=True)

with open("/proc/self/maps") as maps:
    assert any("libwaystation" in line for line in maps), "this is another library"

for hour in range(24):
    db.put(f"berlin:{hour:02}".encode(), str(hour / 2).encode())
    db.put(f"lagos:{hour:02}".encode(), str(20 + hour / 4).encode())
batch = db.newBatch()
db.putTo(batch, b"berlin:23", b"-1.0")
db.deleteFrom(batch, b"lagos:00")
db.write(batch, sync=True)

before = db.snapshot()
db.delete(b"berlin:00")
assert not db.has(b"berlin:00")
assert before.has(b"berlin:00")
del before

berlin = list(db.iterator(prefix=b"berlin:").seekFirst())
assert len(berlin) == 23, berlin
assert berlin[-1] == ("23", "-1.0"), berlin[-1]
for row in berlin[:3]:
    print(row.key, row.value)
db.close()

db = lvldb.DB(directory)
assert db.get(b"berlin:23") is not None
assert db.get(b"lagos:00") is None
db.close()
try:
    lvldb.DB(directory, error_if_exists=True)
except lvldb.Error as error:
    assert "Invalid argument: " in str(error), error
else:
    raise AssertionError("an existing database was opened")
print("done")
