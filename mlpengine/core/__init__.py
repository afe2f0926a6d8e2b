"""Tools that all rooms share: files, operating systems, messages, memory, checks of options."""
