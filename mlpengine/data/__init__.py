"""Tables, features and rows of numbers: everything between a file and a network's input."""
