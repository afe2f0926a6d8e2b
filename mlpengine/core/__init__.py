"""Tools for all packages: files, operating systems, messages, memory, checks of options."""
