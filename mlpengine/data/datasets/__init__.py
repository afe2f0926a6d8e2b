"""Small real data sets that ship with the package; `data.read_table` reads them by name."""
