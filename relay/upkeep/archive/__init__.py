"""Archived months as Parquet files: written, read back, and only then dropped; and restored from there.

    archive.orders_2026_01          a partition, which a mover writes to
        │ seal        detached and renamed; from now on nobody writes there
        ▼
    archive.orders_2026_01_p1       sealed: files are written, one after the other
        │ verify      each file is read back from where it was put, and compared
        ▼
    the same                        verified: may be dropped 30 days later
        │ drop        each file is read back once more
        ▼
    orders/orders_2026_01_p1_*      dropped: the files are what there is

`archive_exports` has a row for each sealed table. Every step begins with what is recorded there, and ends with one
statement that records it: a process that is killed at any instruction has done a step, or not. Files are named after
their contents, so that writing one again changes nothing, and none ever replaces another.
"""
