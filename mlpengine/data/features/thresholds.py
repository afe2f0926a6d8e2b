"""The tuned numbers of this room, each with its unit, its meaning and the script that chose it."""

from mlpengine.core.tuned import tuned

TABLES = "benchmarks/arena.py"

# Kinds of columns and tasks
FEW_LEVELS = tuned(
    20, "levels", "up to which texts are categories, and whole numbers may be classes"
)
MIN_COUNTS = tuned(5, "values", "of whole numbers from 0 on that may be counts")
MIN_MARKS = tuned(6, "values", "of whole numbers that may be marks")
RARER = tuned(20, "times", "the largest count is rarer than the commonest; classes seldom are")
ROWS_PER_CLASS = tuned(5, "rows", "of a class, on average")
MIXED_SHARE = tuned(0.9, "share of levels", "that are numbers in a damaged column of numbers")
SAMPLED_LEVELS = tuned(2_000, "levels", "from which that share is computed")
MARKED_LEVELS = tuned(3, "values", "of numbers with a unit, at least")
MAX_MARKS = tuned(3, "units", "of such a column, at most")

# Features
QUANTILE_ROWS = tuned(1_000_000, "rows", "evenly spaced, that give quantiles")
SAMPLE_NUMBERS = tuned(1 << 25, "values", "of such a sample, over all features")
CLIP = tuned(3.0, "deviations", "bound of clipped features")
CLIPPED_FROM = tuned(1e9, "deviations", "clipped to `CLIP` in float64; keeps squares finite")
MAX_ONE_HOT = tuned(1_000, "levels", "of a category, at most")
WEIGHED_CODES = tuned(5, "codes", "up to which features are 1 whatever they say", TABLES)
SAYS_MUCH = tuned(10.0, "variance ratio - 1", "from which features are 1", TABLES)
SMALLEST_VALUE = tuned(0.05, "value", "of a feature, at least", TABLES)
PROBED_ROWS = tuned(2_000, "rows", "that tell whether a logarithm is learned", TABLES)
FEWEST_ROWS = tuned(50, "rows", "below which none is")
SKEW = tuned(1.0, "skewness", "from which logarithms of a target are tried", TABLES)
GAIN = tuned(0.03, "share of RMSE", "that logarithms must save", TABLES)
PARTS = tuned(5, "folds", "of the probe of logarithms")
RANDOM_UNITS = tuned(200, "units", "of its model")
PROBE_PENALTIES = tuned((10.0, 100.0, 1000.0, 10_000.0), "squares", "the best one counts")

# Duplicate rows
EQUAL_BY_CHANCE = tuned(
    1e-3, "share of rows", "0.0004 in 38 tables of duplicates, 0.001 of few values"
)
FEWEST_DISTINCT = tuned(0.25, "share of rows", "below which columns repeat few values")
CHANCE_ROWS = tuned(20_000, "rows", "by which chance is estimated")
CHANCE_COLUMNS = tuned(256, "columns", "by which chance is estimated")

# Leaks
ANSWER = tuned(0.97, "share of the target", "carat explains 0.87 of a price, a leak nearly all")
ORDER = tuned(
    0.98, "share of the target's ranks", "a target cut in ten has 0.99; honest columns: up to 0.77",
    "benchmarks/diagnoses.py",
)  # fmt: skip
SAMPLE_ROWS = tuned(1_000, "rows", "evenly spaced, that are searched")
MIN_LEAK_ROWS = tuned(20, "rows", "below which nothing is searched")
SAMPLE_COLUMNS = tuned(1_000, "columns", "searched: the ones that follow the target most")
EACH_SIDE = tuned(10, "rows", "nearest ones of other numbers, above and below")
MAX_DATES = tuned(8, "columns", "of dates that are compared in pairs")

# Warnings about tables
MOSTLY_MISSING = tuned(0.5, "share of values", "missing in a column with a warning")
SMALL_CLASS = tuned(10, "rows", "below which a class has a warning")
RARE_CLASS = tuned(0.02, "share of rows", "below which a class has a warning")
LISTED_CLASSES = tuned(20, "classes", "with a line each")
LISTED_COLUMNS = tuned(20, "columns", "with a line each")
SHOWN_LEVELS = tuned(5, "levels", "of a column in its line")
OUTLIER_DISTANCE = tuned(1e6, "ranges of nine values in ten", "from the median; log-normal: 2e4")
OTHER_VALUES = tuned(0.5, "share of validation rows", "unlike the one value of training")
TWO_UNITS = tuned(
    50.0, "medians", "of the target, beyond which a value in 20 lies; healthy: 9",
    "benchmarks/diagnoses.py",
)  # fmt: skip
LONE_DISTANCE = tuned(100.0, "ranges of nine values in ten", "likewise, of a value far beyond all")
LONE_TIMES = tuned(1000.0, "times", "as far from the median as the next value")
MIN_SAMPLE_VALUES = tuned(10_000, "values", "evenly spaced, that give this range")

# New rows beside the training rows
DESCRIBED_ROWS = tuned(10_000, "rows", "of training that are described")
QUANTILES = tuned(16, "steps", "between the quantiles of a number")
SUMMARY_COLUMNS = tuned(1_000, "columns", "that are described")
FAR = tuned(0.1, "range", "beyond its ends, from which a number is far outside training")
TAIL_FACTOR = tuned(1.5, "last sixteenth", "likewise: rare large values have larger successors")
ODDS = tuned(4.0, "deviations", "of missing values beyond chance")
KS_LIMIT = tuned(2.2, "sqrt(1/n + 1/m)", "distance of samples beyond chance (1 in 8,000)")

# Synthetic rows
NEAR_ROWS = tuned(5, "rows", "nearest ones; one of them gives values", "benchmarks/arena.py")
SWAPPED = tuned(0.25, "probability", "of a value of the near row", "benchmarks/arena.py")
CANDIDATES = tuned(8_192, "rows", "among which the nearest are looked for")
FARTHEST = tuned(4.0, "deviations", "from the mean that count in distances")

# Memory: what is computed at once stays in a cache
COMPUTED_ROWS = tuned(1 << 16, "rows", "of formulas, 0.5 MB a column")
HASHED_ROWS = tuned(1 << 15, "rows", "that are hashed")
DISTANCE_ROWS = tuned(256, "rows", "distances are computed for at once")
ONE_HOT_ROWS = tuned(1024, "rows", "of one-hot features")
SLICE_NUMBERS = tuned(1 << 17, "values", "of a slice of rows, 1 MB")
READ_ROWS = tuned(256, "rows", "of all columns that are read, at least")
BLOCK_BYTES = tuned(1 << 20, "bytes", "of a block of prepared rows")
PREPARED_ROWS = tuned(1 << 13, "rows", "that are prepared")
