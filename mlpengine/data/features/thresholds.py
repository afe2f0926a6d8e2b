"""The tuned numbers of features, each with unit, meaning and the script that chose the number."""

from mlpengine.core.tuned import tuned

TABLES = "benchmarks/arena.py"

# Kinds of columns and tasks
FEW_LEVELS = tuned(
    20, "levels", "up to this many, texts are categories, whole numbers perhaps classes"
)
MIN_COUNTS = tuned(5, "distinct values", "counts from 0 on have at least this many")
MIN_MARKS = tuned(6, "distinct values", "grades have at least this many")
RARER = tuned(20, "times", "the largest count is rarer than the commonest; classes seldom are")
ROWS_PER_CLASS = tuned(5, "rows", "classes have at least this many on average")
MIXED_SHARE = tuned(0.9, "share of levels", "a damaged column of numbers has more numbers")
FEW_TEXTS = tuned(0.02, "share of cells", "up to this many texts among numbers are mistakes")
SAMPLED_LEVELS = tuned(2_000, "levels", "that share is computed from at most this many")
MARKED_LEVELS = tuned(3, "levels", "a column of numbers with units has at least this many")
MAX_MARKS = tuned(3, "units", "a column of numbers with units has at most this many")

# Features
QUANTILE_ROWS = tuned(
    1_000_000, "rows", "evenly spaced, at most, from which quantiles are computed"
)
SAMPLE_NUMBERS = tuned(1 << 25, "values", "most values of these rows, over all features")
CLIP = tuned(3.0, "deviations", "clipped features stay within this")
CLIPPED_FROM = tuned(1e9, "deviations", "float64 values are first clipped to this: finite squares")
MAX_ONE_HOT = tuned(1_000, "levels", "most levels of a category")
WEIGHED_CODES = tuned(5, "codes", "with more, `weigh` shrinks the one-hot features", TABLES)
SAYS_MUCH = tuned(10.0, "variance ratio - 1", "one-hot features are 1 above this", TABLES)
SMALLEST_VALUE = tuned(0.05, "value", "smallest value of a one-hot feature", TABLES)
PROBED_ROWS = tuned(2_000, "rows", "the probe of logarithms uses at most this many", TABLES)
FEWEST_ROWS = tuned(50, "rows", "no logarithm is probed on fewer")
SKEW = tuned(1.0, "skewness", "the logarithm of a target is probed above this", TABLES)
GAIN = tuned(0.03, "share of RMSE", "the logarithm must save this much", TABLES)
PARTS = tuned(5, "folds", "number of folds of the probe")
RANDOM_UNITS = tuned(200, "units", "width of the model of random units that the probe fits")
PROBE_PENALTIES = tuned(
    (10.0, 100.0, 1000.0, 10_000.0), "squares", "of that ridge model; the best is used"
)

# Duplicate rows
EQUAL_BY_CHANCE = tuned(
    1e-3, "share of rows", "0.0004 in 38 tables of duplicates, 0.001 of few values"
)
FEWEST_DISTINCT = tuned(
    0.25, "share of rows", "with fewer distinct rows, columns repeat few values"
)
CHANCE_ROWS = tuned(20_000, "rows", "chance is estimated from at most this many")
CHANCE_COLUMNS = tuned(256, "columns", "chance is estimated from at most this many")

# Leaks
ANSWER = tuned(0.97, "share of the target", "a leak explains more; carats explain 0.87 of prices")
ORDER = tuned(
    0.98,
    "share of the target's ranks",
    "a leak explains more; tenths of the target 0.99, honest columns at most 0.77",
    "benchmarks/diagnoses.py",
)
SAMPLE_ROWS = tuned(1_000, "rows", "the search takes at most this many evenly spaced rows")
MIN_LEAK_ROWS = tuned(20, "rows", "smaller tables are not searched")
SAMPLE_COLUMNS = tuned(1_000, "columns", "the search takes those that follow the target most")
EACH_SIDE = tuned(10, "rows", "nearest rows with a smaller number, and as many with a larger one")
MAX_DATES = tuned(8, "columns", "at most this many columns of dates are compared in pairs")

# Warnings about tables
MOSTLY_MISSING = tuned(0.5, "share of values", "a column with more missing values has a warning")
SMALL_CLASS = tuned(10, "rows", "a class with fewer rows has a warning")
RARE_CLASS = tuned(0.02, "share of rows", "a class with a smaller share has a warning")
LISTED_CLASSES = tuned(20, "classes", "at most this many have a line each")
LISTED_COLUMNS = tuned(5, "columns", "at most this many have a line each")
COMPARED_TEXTS = tuned(20, "texts", "so many without a feature are compared with the levels")
LISTED_TEXTS = tuned(3, "texts", "at most this many texts without a feature are named")
SHOWN_LEVELS = tuned(5, "levels", "the line of a column shows at most this many")
OUTLIER_DISTANCE = tuned(
    1e6, "90 % ranges", "an outlier is farther from the median (log-normal: 2e4)"
)
OTHER_VALUES = tuned(0.5, "share of validation rows", "too many differ from the one training value")
TWO_UNITS = tuned(
    50.0, "medians", "one target in 20 is larger: two units; healthy: 9", "benchmarks/diagnoses.py"
)
LONE_DISTANCE = tuned(100.0, "90 % ranges", "a target value far beyond all others is farther away")
LONE_TIMES = tuned(
    1000.0, "times", "such a value is this much farther from the median than the next one"
)
MIN_SAMPLE_VALUES = tuned(10_000, "values", "evenly spaced, at least, that give the 90 % range")

# New rows beside the training rows
DESCRIBED_ROWS = tuned(10_000, "rows", "at most this many training rows are described")
QUANTILES = tuned(16, "steps", "a number column is described by quantiles at multiples of 1/16")
SUMMARY_COLUMNS = tuned(1_000, "columns", "at most this many are described")
FAR = tuned(0.1, "range", "a number is far outside training if it is this far beyond the ends")
TAIL_FACTOR = tuned(1.5, "last sixteenth", "and this far beyond the last quantile: tails are long")
ODDS = tuned(4.0, "deviations", "missing values beyond chance exceed their mean by more")
KS_LIMIT = tuned(2.2, "sqrt(1/n + 1/m)", "distance of samples beyond chance (1 in 8,000)")

# Synthetic rows
NEAR_ROWS = tuned(5, "rows", "nearest rows; one of them gives values", TABLES)
SWAPPED = tuned(0.25, "probability", "a value comes from the near row", TABLES)
CANDIDATES = tuned(8_192, "rows", "nearest rows are searched among this many")
LEAST_TIME = tuned(1e-30, "mean times", "a lower bound of 0 counts as this, because 0 has no log")
FARTHEST = tuned(4.0, "deviations", "distances count values up to this far from the mean")

# Memory: sizes of blocks that stay in a cache
WINDOW_NUMBERS = tuned(1 << 17, "values", "size of a block of windows of rows, 1 MB")
COMPUTED_ROWS = tuned(1 << 16, "rows", "formulas are computed for this many at once, 0.5 MB each")
HASHED_ROWS = tuned(1 << 15, "rows", "this many are hashed at once")
DISTANCE_ROWS = tuned(256, "rows", "distances are computed for this many at once")
ONE_HOT_ROWS = tuned(1024, "rows", "one-hot features are written for this many at once")
SLICE_NUMBERS = tuned(1 << 17, "values", "size of a slice of rows, 1 MB")
READ_ROWS = tuned(256, "rows", "at least this many rows of all columns are read at once")
BLOCK_BYTES = tuned(1 << 20, "bytes", "size of a block of prepared rows")
PREPARED_ROWS = tuned(1 << 13, "rows", "at most this many are prepared at once")
