"""Tools that all rooms share: files, systems, words, memory, checks of names and limits."""
