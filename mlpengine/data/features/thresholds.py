"""The tuned numbers of features, each with unit, meaning and the script that chose the number."""

from mlpengine.core.tuned import tuned

TABLES = "benchmarks/arena.py"

# Kinds of columns and tasks
FEW_LEVELS = tuned(
    20, "levels", "texts with at most this many are categories; whole numbers may be classes"
)
MIN_COUNTS = tuned(5, "distinct values", "counts from 0 on have at least this many")
MIN_MARKS = tuned(6, "distinct values", "grades have at least this many")
RARER = tuned(20, "times", "the largest count is this much rarer than the most frequent count")
ROWS_PER_CLASS = tuned(5, "rows", "a class has at least this many rows on average")
MIXED_SHARE = tuned(0.9, "share of levels", "if more are numbers, the other texts are mistakes")
FEW_TEXTS = tuned(0.02, "share of values", "up to this share, texts among numbers are mistakes")
SAMPLED_LEVELS = tuned(2_000, "levels", "the share of numbers is computed from at most this many")
MARKED_LEVELS = tuned(3, "levels", "a column of numbers with units has at least this many")
MAX_MARKS = tuned(3, "units", "a column of numbers with units has at most this many")

# Features
QUANTILE_ROWS = tuned(1_000_000, "rows", "at most this many give the quantiles of a feature")
SAMPLE_NUMBERS = tuned(1 << 25, "values", "at most this many give the quantiles of all features")
CLIP = tuned(3.0, "deviations", "clipped features are between -CLIP and CLIP")
CLIPPED_FROM = tuned(1e9, "deviations", "values are cut to this first, so that squares are finite")
MAX_ONE_HOT = tuned(1_000, "levels", "a category may have at most this many")
WEIGHED_CODES = tuned(5, "codes", "with more, `weigh` shrinks the one-hot features", TABLES)
CLEAR_RATIO = tuned(10.0, "variance ratio - 1", "from here on, `weigh` does not shrink", TABLES)
SMALLEST_VALUE = tuned(0.05, "value", "the lowest value that `weigh` chooses instead of 1", TABLES)
PROBED_ROWS = tuned(2_000, "rows", "the probe of logarithms uses at most this many", TABLES)
FEWEST_ROWS = tuned(50, "rows", "with fewer, the logarithm of a target is not probed")
SKEW = tuned(1.0, "skewness", "the logarithm of a target is probed above this", TABLES)
GAIN = tuned(0.03, "share of RMSE", "the logarithm must save this much", TABLES)
PARTS = tuned(5, "folds", "number of folds of the probe")
RANDOM_UNITS = tuned(200, "units", "number of random units in the probe's ridge regression")
PROBE_PENALTIES = tuned(
    (10.0, 100.0, 1000.0, 10_000.0), "squares", "penalties of the ridge probe; the best is used"
)

# Duplicate rows
EQUAL_BY_CHANCE = tuned(
    1e-3, "share of rows", "no duplicates if chance makes more rows equal (38 tables: 0.0004)"
)
FEWEST_DISTINCT = tuned(0.25, "share of rows", "no duplicates if fewer rows are distinct")
COPIED = tuned(0.05, "share of rows", "test rows repeat training rows if more do than by chance")
BY_CHANCE = tuned(0.03, "share of rows", "levels are frequent by chance if new rows have fewer")
CHANCE_ROWS = tuned(20_000, "rows", "chance is estimated from at most this many")
CHANCE_COLUMNS = tuned(256, "columns", "chance is estimated from at most this many")

# Leaks
ANSWER = tuned(0.97, "share of the target", "a leak explains more; carats of diamonds explain 0.87")
ORDER = tuned(
    0.98,
    "share of the target's ranks",
    "a leak explains more; a target in ten bins explains 0.99, honest columns at most 0.77",
    "benchmarks/diagnoses.py",
)
SAMPLE_ROWS = tuned(1_000, "rows", "the search uses at most this many evenly spaced rows")
MIN_LEAK_ROWS = tuned(20, "rows", "smaller tables are not searched")
SAMPLE_COLUMNS = tuned(1_000, "columns", "only those with the highest correlation are searched")
EACH_SIDE = tuned(10, "rows", "neighbors of a row on each side, in the order of a column")
MAX_DATES = tuned(8, "columns", "at most this many columns of dates are compared in pairs")

# Warnings about tables
MOSTLY_MISSING = tuned(0.5, "share of values", "a column with more missing values gets a warning")
SMALL_CLASS = tuned(10, "rows", "a class with fewer rows gets a warning")
RARE_CLASS = tuned(0.02, "share of rows", "a class with a smaller share gets a warning")
LISTED_CLASSES = tuned(20, "classes", "messages list at most this many, one a line")
LISTED_COLUMNS = tuned(5, "columns", "messages list at most this many, one a line")
COMPARED_TEXTS = tuned(20, "texts", "at most this many unknown texts are compared with the levels")
LISTED_TEXTS = tuned(3, "texts", "a message names at most this many unknown texts")
SHOWN_LEVELS = tuned(5, "levels", "the line of a column shows at most this many")
OUTLIER_DISTANCE = tuned(
    1e6, "90 % ranges", "an outlier is farther from the median (log-normal values: up to 2e4)"
)
OTHER_VALUES = tuned(
    0.5, "share of validation rows", "a verdict if more differ from a constant training column"
)
TWO_UNITS = tuned(
    50.0,
    "medians",
    "the target has two units if 1 in 20 values is larger (healthy targets: 9)",
    "benchmarks/diagnoses.py",
)
LONE_DISTANCE = tuned(100.0, "90 % ranges", "a lone target value is farther from the median")
LONE_TIMES = tuned(1000.0, "times", "a lone value is this much farther than the next value")
MIN_SAMPLE_VALUES = tuned(10_000, "values", "at least this many give the 90 % range")

# New rows compared with training rows
DESCRIBED_ROWS = tuned(10_000, "rows", "at most this many training rows are described")
QUANTILES = tuned(16, "steps", "a number column is described by quantiles at multiples of 1/16")
SUMMARY_COLUMNS = tuned(1_000, "columns", "at most this many are described")
FAR = tuned(0.1, "training ranges", "a number this far beyond the range is far outside")
TAIL_FACTOR = tuned(1.5, "last sixteenths", "it must also be this far beyond: tails may be long")
ODDS = tuned(4.0, "deviations", "missing values this far above the expected number are not chance")
KS_LIMIT = tuned(2.2, "sqrt(1/n + 1/m)", "chance gives a larger distance 1 time in 8,000")

# Synthetic rows
NEAR_ROWS = tuned(5, "rows", "one of this many nearest rows gives values", TABLES)
SWAPPED = tuned(0.25, "probability", "a value comes from the other row", TABLES)
CANDIDATES = tuned(8_192, "rows", "nearest rows are searched among this many")
LEAST_TIME = tuned(1e-30, "mean times", "replaces a lower bound of 0, because 0 has no logarithm")
BEYOND_TARGETS = tuned(1e3, "times", "largest factor beyond the range of targets, for logarithms")
FARTHEST = tuned(4.0, "deviations", "values farther from the mean are cut, for distances of rows")

# Memory: sizes of blocks that stay in a cache
WINDOW_NUMBERS = tuned(1 << 17, "values", "rolling windows are computed for 1 MB at once")
COMPUTED_ROWS = tuned(1 << 16, "rows", "formulas are computed for this many at once, 0.5 MB each")
HASHED_ROWS = tuned(1 << 15, "rows", "this many are hashed at once")
DISTANCE_ROWS = tuned(256, "rows", "distances are computed for this many at once")
ONE_HOT_ROWS = tuned(1024, "rows", "one-hot features are written for this many at once")
SLICE_NUMBERS = tuned(1 << 17, "values", "a slice of rows has at most this many, 1 MB")
READ_ROWS = tuned(256, "rows", "at least this many rows of all columns are read at once")
BLOCK_BYTES = tuned(1 << 20, "bytes", "size of a block of prepared rows")
PREPARED_ROWS = tuned(1 << 13, "rows", "at most this many are prepared at once")
