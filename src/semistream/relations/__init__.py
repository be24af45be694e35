"""R, the master data: how it is put on disk, and the ways in which it can be read."""
