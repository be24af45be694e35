"""The embedded store: versions of sorted Arrow pages in a directory."""
