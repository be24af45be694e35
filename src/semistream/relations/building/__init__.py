"""From a source of any size and order to the sorted pages of a relation."""
