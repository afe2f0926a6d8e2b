"""Measurements of a plant in the workshop: writes plant.csv, what an action made of a value."""

import csv
from math import sin
from random import Random

random = Random(0)
value = 0.0
with open("plant.csv", "w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["value", "action", "next"])
    for _ in range(4000):
        action = random.uniform(-1, 1)
        after = 0.8 * value + 0.6 * action + 0.05 * sin(3 * value)
        rows.writerow([f"{value:.5f}", f"{action:.5f}", f"{after:.5f}"])
        value = after
