"""Tables, features and rows of numbers: everything between a file and what a network reads."""
