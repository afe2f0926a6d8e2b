"""The tuned numbers of this package, each with its unit, its meaning and the script that chose it.

A name in backticks is the verdict that depends on the number.  "Healthy" is the most extreme value
in the healthy runs of `CORPUS`.  If that value is beyond the number, another condition of the
verdict excludes these runs.  The unit "constant loss" is the loss of the best constant prediction.
"""

from mlpengine.core.tuned import tuned

CORPUS = "benchmarks/diagnoses.py"

# Sampling
CAPACITY = tuned(512, "samples", "a run keeps at most this many, and drops every second if full")
EVERY = tuned(50, "steps", "interval between samples")
STRETCH = tuned(10, "times", "after DENSE_STEPS, the interval of short steps is this much longer")
DENSE_STEPS = tuned(1000, "steps", "after this many, the interval of short steps is longer")
SHORT_STEP = tuned(4_000_000, "parameters x rows", "a step with fewer is faster than a sample")
WATCH_EVERY = tuned(50, "steps", "interval between samples in loops of other libraries")
WATCHED_ROWS = tuned(1024, "rows", "a sample in loops of other libraries has at most this many")
NOISE_DECAY = tuned(0.9, "share", "weight of the past in the mean of the gradient noise scale")
MIN_WINDOW_ROWS = tuned(256, "rows", "a unit is dead if its output is 0 on this many rows")
SATURATION_POINT = tuned(0.97, "share of half the range", "a value beyond this point is saturated")

# Spikes of the gradient norm
SPIKE_DEVIATIONS = tuned(4.0, "deviations", "a spike lies this far above the mean of log norms")
SPIKE_DECAY = tuned(0.98, "share", "weight of the past in mean and deviation of log norms")
SPIKE_WARM_UP = tuned(10, "steps", "the first steps of a run are never spikes")
WEIGHED = tuned(2_000, "norms", "older norms are ignored; their weight is a rounding error")
LARGEST_EXPONENT = tuned(700.0, "nats", "largest argument of exp in float64, rounded down")

# Before training
FIFTH = tuned(5, "rank", "values are compared with the fifth largest, so 4 wrong rows are found")
# Size of steps
GUIDE_RATIO = tuned(1e-3, "update / weights", "usual in a network that learns, within a factor 10")
AIM = tuned(0.02, "update / weights", "advised for step 1; healthy: 0.005 to 0.06", CORPUS)
FAST_RATIO = tuned(
    0.3, "update / weights", "`lr_high` above this if learning suffers; healthy: 0.07", CORPUS
)
VERY_FAST_RATIO = tuned(0.5, "update / weights", "`lr_high` above this in any case", CORPUS)
SLOW_RATIO = tuned(1e-4, "update / weights", "`lr_low` below this; healthy: 2.8e-3", CORPUS)
SLOW_START = tuned(3e-3, "update / weights", "raise the rate below this; healthy: 4.4e-3", CORPUS)
CLIPPED = tuned(0.9, "share of steps", "`clip_low` if more are clipped; healthy: 0.1", CORPUS)
COEFFICIENT = tuned(0.05, "clipped norm / norm", "`clip_low` if the median is lower", CORPUS)
LARGE_MOMENTUM = tuned(0.97, "momentum", "`momentum_high` above this; healthy: 0.9", CORPUS)
SWINGS = tuned(0.1, "constant loss", "the training loss swings if it rises by more", CORPUS)
FADED = tuned(0.01, "peak rate", "the network stops learning if the learning rate falls below this")
WARMING = tuned(0.75, "last rate", "the run still warms up if the rate at half time is below this")
FADED_SHARE = tuned(0.5, "share of steps", "`schedule` if lr fades earlier; healthy: 0.9", CORPUS)
SMALL_BATCH = tuned(4, "rows", "`small_batch` below this")
LARGE_DECAY = tuned(
    3.0, "exponent k", "`decay_high` if weights shrink by more than e^-k; healthy: 0.7", CORPUS
)
ERASING_DECAY = tuned(10.0, "exponent k", "`decay_high` even after learning; healthy: 2.4", CORPUS)
HUGE_DECAY = tuned(5.0, "weight decay", "no run needs this much")
USUAL_EPS = tuned(1e-7, "eps", "largest default of an optimizer")
LARGE_EPS = tuned(1.0, "gradients of a weight", "`eps_large` above this; healthy: 2e-5", CORPUS)

# Layers, inputs and targets
STEEP = tuned(
    2.0,
    "decades",
    "`vanishing` or `exploding` if gradients of layers differ more; healthy: 0.8",
    CORPUS,
)
STEEP_IF_BEHIND = tuned(1.0, "decades", "replaces STEEP if a simple model is better", CORPUS)
SMALL_SIGNAL = tuned(1e-3, "last / first deviation", "`vanishing` activations below this", CORPUS)
DEAD = tuned(0.4, "share of units", "`dead` if more never fire; healthy: 0.19", CORPUS)
WELL_LEARNED = tuned(0.5, "constant loss", "dead units do no harm below this loss", CORPUS)
SATURATED_SHARE = tuned(0.5, "share of values", "`saturated` if more are; healthy: 0.18", CORPUS)
LARGE_INPUT = tuned(8.0, "RMS of features", "`input_scale` above this; healthy: 1", CORPUS)
SMALL_INPUT = tuned(0.01, "RMS of features", "`input_scale` below this; healthy: 0.5", CORPUS)
LARGE_FEATURE = tuned(8.0, "0.9 quantile of size", "`input_scale` above this; healthy: 2.1", CORPUS)
UNUSUAL_INPUT = tuned(3.0, "RMS of features", "larger features may explain a large first loss")
SMALL_TARGET = tuned(1e-3, "RMS of targets", "smaller targets explain a small loss", CORPUS)
SMALL_LOSS = tuned(1e-10, "loss of a constant", "below this, gradients are below eps, 1e-8", CORPUS)
LARGE_TARGET = tuned(30.0, "RMS of targets", "`target_scale` above this; healthy: 1", CORPUS)
OFF_CENTER = tuned(3.0, "RMS / std of targets", "`target_scale` above this; healthy: 1", CORPUS)
START_TIMES = tuned(
    10.0, "constant loss", "`start` if the first loss is more; healthy: 2.7", CORPUS
)
LOWEST_SCALE = tuned(0.5, "weight scale", "usual initializers have more (0.95 to 1.5)", CORPUS)
HIGHEST_SCALE = tuned(2.5, "weight scale", "usual initializers have less (0.95 to 1.5)", CORPUS)

# Rows that stand out
OUTLIER_TIMES = tuned(
    30.0, "usual norms", "`outlier` if a batch has more; healthy: 260 (see OUTLIER_NORM)", CORPUS
)
OUTLIER_SHARE = tuned(
    0.9, "share of the norm", "`outlier` if one row causes more than this", CORPUS
)
OUTLIER_NORM = tuned(5.0, "first norms", "no `outlier` if the norm of the batch is lower", CORPUS)
EXTREME_TIMES = tuned(20.0, "fifth largest values", "`outlier` above this; healthy: 10", CORPUS)
SPIKES = tuned(0.02, "share of steps", "`spikes` if more are spikes; healthy: 0.004", CORPUS)
RARE_SHARE = tuned(0.5, "rows of a mean class", "a class with fewer rows is rare", CORPUS)
RECALL = tuned(0.12, "recall", "`imbalance` if a rare class has less; healthy: 0.6", CORPUS)
COMMON_RECALL = tuned(0.5, "recall", "no `imbalance` if other classes have less on average", CORPUS)

# Curves
LEARNED = tuned(0.98, "constant loss", "a network has learned something below this loss", CORPUS)
MIN_EPOCHS = tuned(5, "epochs", "shorter curves are not judged")
SIGNAL = tuned(0.08, "r2", "no `noisy_labels` if simple models explain less", CORPUS)
CLEAR_SIGNAL = tuned(0.19, "r2", "`noisy_labels` is a note if simple models explain less", CORPUS)
COMMON_CLASS = tuned(0.7, "share of rows", "`labels` is a note if one class has more", CORPUS)
RELATED = tuned(
    2.0, "standard errors", "above this, features tell the target; shuffled targets: 1.6", CORPUS
)
OVERFITTED = tuned(1.15, "constant loss", "above this, overfitting may explain `labels`", CORPUS)
USELESS = tuned(0.02, "r2", "a network with less in its best epoch is no better than a constant")
FITTED = tuned(0.9, "constant loss", "a network with a larger training loss cannot overfit", CORPUS)
BEHIND = tuned(
    0.1, "constant loss", "`underfitting`: a simple model leads by more; healthy: 0.02", CORPUS
)
RISE = tuned(0.08, "constant loss", "`overfitting` if the loss rises more; healthy: 0.04", CORPUS)
RELATIVE_RISE = tuned(0.1, "lowest loss", "`overfitting` only if the loss rises more", CORPUS)
MEMORIZED_GAP = tuned(0.1, "constant loss", "MEMORIZED needs a larger gap; healthy: 0.3", CORPUS)
MEMORIZED = tuned(15.0, "validation / training loss", "`overfitting` above; healthy: 1.8", CORPUS)
LARGE_DROPOUT = tuned(0.6, "rate", "`dropout_high` above this; healthy: 0.3", CORPUS)
DROPOUT_TIMES = tuned(
    1.5, "training / validation loss", "`dropout_high` above this; healthy: 1.1", CORPUS
)
DROPOUT_SHARE = tuned(0.3, "constant loss", "below this training loss, dropout is harmless", CORPUS)
ENOUGH_STEPS = tuned(
    1000, "steps", "a run with this many may be complete in fewer than MIN_EPOCHS", CORPUS
)
FEW_STEPS = tuned(
    150, "steps", "`few_steps` below this if the loss still falls; healthy: 80", CORPUS
)
FEW_STEPS_FALL = tuned(
    0.05, "constant loss", "`few_steps` needs a larger fall of the loss; healthy: 0.06", CORPUS
)
FEW_STEPS_SHARE = tuned(0.6, "constant loss", "no `few_steps` below this; healthy: 0.5", CORPUS)
FEW_BATCHES = tuned(3, "steps of an epoch", "with at most this many, batches are large")
FAR_TOO_FEW_STEPS = tuned(40, "steps", "too few for any run", CORPUS)
FAR_TOO_FEW_SHARE = tuned(
    0.1, "constant loss", "replaces FEW_STEPS_SHARE for large batches", CORPUS
)
SMALL_LAYER = tuned(
    8, "units", "up to this, the layer is too small; a higher learning rate would not help", CORPUS
)
STILL_FALLING = tuned(0.02, "constant loss", "replaces FALL if a simple model is better", CORPUS)
FALL = tuned(
    0.08, "constant loss", "`unfinished` if the loss fell more at the end; healthy: 0.12", CORPUS
)
RELATIVE_FALL = tuned(0.22, "last loss", "`unfinished` needs a larger fall; healthy: 0.19", CORPUS)
LARGE_BATCH = tuned(25.0, "noise scales", "`noise_scale` if a batch is larger; healthy: 15", CORPUS)
MIN_BATCH = tuned(128, "rows", "smaller batches are never too large", CORPUS)
UNLEARNED = tuned(0.03, "constant loss", "a larger training loss leaves something to learn", CORPUS)
HURRIED_BATCH = tuned(
    8.0, "noise scales", "replaces LARGE_BATCH in short runs; healthy: 7.5", CORPUS
)
MANY_STEPS = tuned(500, "steps", "a run with at most this many is short", CORPUS)
HURRIED_SHARE = tuned(0.1, "constant loss", "HURRIED_BATCH needs a larger training loss", CORPUS)

# Simple models
NEIGHBORS = tuned(10, "rows", "a nearest-neighbors prediction is the mean of this many")
MIN_BASELINE_ROWS = tuned(50, "rows", "no simple model is fitted to fewer")
MAX_ROWS = tuned(1_500, "rows", "simple models are fitted to at most this many")
MAX_FEATURES = tuned(2_000, "features", "no simple model is fitted to more")
RIDGE = tuned(1e-3, "mean square of a feature", "penalty of the linear model")
RANDOM_UNITS = tuned(128, "units", "width of the model of random units")
RIDGE_PENALTIES = tuned(
    (1e-4, 1e-3, 1e-2), "largest variance", "penalties of the random units; the best is used"
)
SIMPLE_MODELS = tuned(0.1, "seconds", "all simple models together take at most this long")
SECONDS_PER_PAIR = tuned(40e-9, "seconds", "maximum time for a pair of rows (Xeon, 2026)")
SECONDS_PER_VALUE = tuned(450e-9, "seconds", "maximum time for a value (Xeon, 2026)")
COPIES = tuned(0.5, "share of rows", "`too_good` if more are near copies; healthy: 0.64", CORPUS)
OF_COPIES = tuned(0.5, "errors of a simple model", "COPIES needs fewer; healthy: 0.65", CORPUS)
FEW_COPIES = tuned(0.25, "share of rows", "replaces COPIES if errors are below OF_FEW_COPIES")
OF_FEW_COPIES = tuned(0.25, "errors of a simple model", "see FEW_COPIES; healthy: 0.65", CORPUS)
SOME_ERRORS = tuned(10, "rows", "FEW_COPIES holds only if the simple model has more errors")
COPY_DISTANCE = tuned(0.4, "distance of the tenth nearest row", "a nearer row is a near copy")
COPY_ROWS = tuned(100, "rows", "this many validation rows are compared with training rows")
COPY_VALUES = tuned(1 << 20, "values", "training rows with at most this many are compared")
TOO_GOOD = tuned(1e-3, "constant loss", "`too_good` below this validation error")
HARD_ROWS = tuned(100, "rows", "no `too_good` if a constant prediction misses fewer")
SURE_SHARE = tuned(0.2, "share of rows", "sure rows: the rows where a simple model is surest")
SURE_ROWS = tuned(50, "rows", "minimum number of sure rows")
SURE = tuned(1e-4, "probability", "chance of a false report of a shift, over all features")
PROBABLE = tuned(2.0, "standard errors", "two models probably differ above this")
SMALL_LEAD = tuned(1e-3, "share of the error", "a lead of one model up to this does not matter")
CLEAR = tuned(3.5, "standard errors", "two models clearly differ above this; healthy: 3.3", CORPUS)
SHIFT = tuned(0.25, "distance", "`shifted` if distributions differ by more; healthy: 0.2", CORPUS)
CONTRADICTED = tuned(0.1, "share of sure rows", "`noisy_labels` above this; healthy: 0.04", CORPUS)
BY_CHANCE = tuned(0.05, "share of rows", "at most this many are near copies by chance")
FAR_NEIGHBORS = tuned(40, "rows", "the number of dimensions is measured up to this neighbor")
REPEATED = tuned(
    0.25,
    "share of validation rows",
    "`too_good` if more are copies of training rows; healthy: 0.04",
    CORPUS,
)
MOVED = tuned(
    2.5,
    "standard errors",
    "`labels` if an adjacent target is predicted better; healthy: 0.3",
    CORPUS,
)
MOVED_GAIN = tuned(0.05, "share of squares", "MOVED needs an error lower by this", CORPUS)
EVEN = tuned(
    0.57,
    "errors of all rows",
    "`noisy_labels` if sure rows have more errors; healthy: 0.49",
    CORPUS,
)
CODES = tuned(
    0.12, "share of rows", "`class_codes` if a classifier gains more; counts, ranks: 0.06", CORPUS
)
ON_SCALE = tuned(15, "rows", "neighbors on each side, by output, that vote for the class of a row")
CHANCE_LINK = tuned(0.01, "probability", "chance of a false correlation, over all features")
SMALLEST_SPREAD = tuned(1e-6, "std(feature) x std(target)", "no correlation is computed up to this")
CODE_VALUES = tuned(30, "values", "a target with more is not tested for codes of classes")
LOSS_MISLEADS = tuned(2.0, "relative squared error / loss", "`wrong_loss` above this", CORPUS)
SIGNIFICANT = tuned(2.0, "standard errors", "CONTRADICTED needs this margin; healthy: 2", CORPUS)
MATERIAL = tuned(0.02, "lead over a constant", "`behind_linear` above this", CORPUS)

# Text
NAME_CHARACTERS = tuned(60, "characters", "longest name of a column, a class or a layer")
LAYER_CHARACTERS = tuned(20, "characters", "longest name of a layer in a table")
TABLE_WIDTH = tuned(80, "characters", "width of a table")
