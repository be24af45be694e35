"""The demo: a year of sales, enriched from three relations on disk, lands in a star schema."""
