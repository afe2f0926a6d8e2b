"""What all floors share: files, systems, words, memory, checks of names and limits."""
