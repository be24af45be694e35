"""The command line: each command parses, makes one call into the library and prints."""
