"""The tuned numbers of this package, each with its unit, its meaning and the script that chose it.

A value above a number that is "too large", or below a number that is "too small", leads to a
verdict.  "Healthy" is the most extreme value among the healthy set-ups of `CORPUS`.  If "healthy"
is beyond the number, a second condition of the verdict excludes these set-ups.  The unit "constant
loss" is the loss of the best constant prediction.
"""

from mlpengine.core.tuned import tuned

CORPUS = "benchmarks/diagnoses.py"

# Sampling
CAPACITY = tuned(512, "samples", "most samples kept of a run; a full list drops every second one")
EVERY = tuned(50, "steps", "from one sample to the next")
STRETCH = tuned(10, "times", "growth of that interval after DENSE_STEPS, if steps are short")
DENSE_STEPS = tuned(1000, "steps", "a run samples short steps less often after this many")
SHORT_STEP = tuned(
    4_000_000, "parameters x rows", "below this, sampling takes longer than the step"
)
WATCH_EVERY = tuned(50, "steps", "from one sample to the next in loops of other libraries")
WATCHED_ROWS = tuned(1024, "rows", "that are measured of a batch in loops of other libraries")
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
FIFTH = tuned(5, "rank", "magnitudes are compared with the fifth largest; finds up to 4 wrong rows")
# Size of steps
GUIDE_RATIO = tuned(1e-3, "update / weights", "usual in a network that learns, within a decade")
AIM = tuned(
    0.02, "update / weights", "aim of suggested rates in step 1; healthy: 0.005 to 0.06", CORPUS
)
FAST_RATIO = tuned(0.3, "update / weights", "too large if learning suffers; healthy: 0.07", CORPUS)
VERY_FAST_RATIO = tuned(0.5, "update / weights", "too large even if the loss falls", CORPUS)
SLOW_RATIO = tuned(1e-4, "update / weights", "too small; healthy: from 2.8e-3", CORPUS)
SLOW_START = tuned(3e-3, "update / weights", "too small in the first step; healthy: 4.4e-3", CORPUS)
CLIPPED = tuned(0.9, "share of steps", "clipping acts too often above this; healthy: 0.1", CORPUS)
COEFFICIENT = tuned(
    0.05, "clipped norm / norm", "clipping is too strong if the median is less", CORPUS
)
LARGE_MOMENTUM = tuned(0.97, "momentum", "too large above this; healthy: 0.9", CORPUS)
SWINGS = tuned(0.1, "constant loss", "rise of the training loss above its minimum: a swing", CORPUS)
FADED = tuned(0.01, "peak rate", "the network stops learning if the learning rate falls below this")
WARMING = tuned(0.75, "last rate", "the run still warms up if the rate at half time is below this")
FADED_SHARE = tuned(0.5, "share of steps", "FADED before this is too soon; healthy: 0.9", CORPUS)
SMALL_BATCH = tuned(4, "rows", "a batch is too small below this")
LARGE_DECAY = tuned(
    3.0, "exponent k", "weights shrink by e^-k in a run: too much; healthy: 0.7", CORPUS
)
ERASING_DECAY = tuned(
    10.0, "exponent k", "too much even if the network learned; healthy: 2.4", CORPUS
)
HUGE_DECAY = tuned(5.0, "weight decay", "no run needs this much")
USUAL_EPS = tuned(1e-7, "eps", "largest default of an optimizer")
LARGE_EPS = tuned(1.0, "usual gradients of a weight", "too large; healthy: 2e-5", CORPUS)

# Layers, inputs and targets
STEEP = tuned(
    2.0, "decades", "between gradients of first and last layer: too many; healthy: 0.8", CORPUS
)
STEEP_IF_BEHIND = tuned(
    1.0, "decades", "too many if a network of bounded activations is behind a simple model", CORPUS
)
SMALL_SIGNAL = tuned(
    1e-3, "share", "deviation of last / first hidden layer in step 1, too small", CORPUS
)
DEAD = tuned(0.4, "share of units", "too many never fire; healthy: 0.19", CORPUS)
WELL_LEARNED = tuned(0.5, "constant loss", "dead units do no harm below this loss", CORPUS)
SATURATED_SHARE = tuned(
    0.5, "share of activations", "too many are saturated; healthy: 0.18", CORPUS
)
LARGE_INPUT = tuned(8.0, "root mean square", "of the features, too large; healthy: 1", CORPUS)
SMALL_INPUT = tuned(0.01, "root mean square", "of the features, too small; healthy: 0.5", CORPUS)
LARGE_FEATURE = tuned(
    8.0, "0.9 quantile of magnitudes", "of a feature, too large; healthy: 2.1", CORPUS
)
UNUSUAL_INPUT = tuned(3.0, "root mean square", "features may explain a large loss above this")
SMALL_TARGET = tuned(1e-3, "root mean square", "below it a small loss is the target's", CORPUS)
SMALL_LOSS = tuned(1e-10, "loss", "of a constant: gradients are below the usual eps, 1e-8", CORPUS)
LARGE_TARGET = tuned(30.0, "root mean square", "of the targets, too large; healthy: 1", CORPUS)
OFF_CENTER = tuned(
    3.0, "deviations", "root mean square of the target, too large; healthy: 1", CORPUS
)
START_TIMES = tuned(10.0, "constant loss", "first loss, too large; healthy: 2.7", CORPUS)
LOWEST_SCALE = tuned(
    0.5, "weight scale", "lower than a usual initializer's; ours: 0.95 to 1.5", CORPUS
)
HIGHEST_SCALE = tuned(
    2.5, "weight scale", "higher than a usual initializer's; ours: 0.95 to 1.5", CORPUS
)

# Rows that stand out
OUTLIER_TIMES = tuned(
    30.0, "usual norms", "norm of a batch; healthy: 260 late in a run, see OUTLIER_NORM", CORPUS
)
OUTLIER_SHARE = tuned(0.9, "share of the batch's norm", "an outlier causes more than this", CORPUS)
OUTLIER_NORM = tuned(5.0, "first norms", "smaller spikes do not count late in a run", CORPUS)
EXTREME_TIMES = tuned(20.0, "fifth largest values", "a larger cell is extreme; healthy: 10", CORPUS)
SPIKES = tuned(0.02, "share of steps", "too many are spikes; healthy: 0.004", CORPUS)
RARE_SHARE = tuned(0.5, "rows of a mean class", "a class with fewer rows is rare", CORPUS)
RECALL = tuned(0.12, "recall", "a class is hardly predicted below this; healthy: 0.6", CORPUS)
COMMON_RECALL = tuned(
    0.5, "recall", "mean of the other classes; if lower, RECALL is not judged", CORPUS
)

# Curves
LEARNED = tuned(0.98, "constant loss", "a network has learned something below this loss", CORPUS)
MIN_EPOCHS = tuned(5, "epochs", "shorter curves are not judged")
SIGNAL = tuned(0.08, "r2", "`noisy_labels` needs a simple model that explains more", CORPUS)
CLEAR_SIGNAL = tuned(0.19, "r2", "`noisy_labels` is only a note if it explains less", CORPUS)
COMMON_CLASS = tuned(0.7, "share of rows", "`labels` is only a note if one class has more", CORPUS)
RELATED = tuned(
    2.0, "standard errors", "lead of a simple model that shows a relation; shuffled: 1.6", CORPUS
)
OVERFITTED = tuned(
    1.15, "constant loss", "a larger validation loss may be overfitting, not `labels`", CORPUS
)
USELESS = tuned(0.02, "r2", "a network with less, in its best epoch, is no better than a constant")
FITTED = tuned(0.9, "constant loss", "a network with a larger training loss cannot overfit", CORPUS)
BEHIND = tuned(0.1, "constant loss", "too far behind a simple model; healthy: 0.02", CORPUS)
RISE = tuned(0.08, "constant loss", "rise of the validation loss, too large; healthy: 0.04", CORPUS)
RELATIVE_RISE = tuned(0.1, "lowest loss", "rise of the validation loss, too large", CORPUS)
MEMORIZED_GAP = tuned(
    0.1, "constant loss", "validation - training loss, too large; healthy: 0.3", CORPUS
)
MEMORIZED = tuned(
    15.0, "times", "validation / training loss, too large; healthy: 1.8 if the gap is 0.3", CORPUS
)
LARGE_DROPOUT = tuned(0.6, "rate", "dropout is too large above this; healthy: 0.3", CORPUS)
DROPOUT_TIMES = tuned(1.5, "times", "training / validation loss, too large; healthy: 1.1", CORPUS)
DROPOUT_SHARE = tuned(0.3, "constant loss", "below this training loss, dropout is harmless", CORPUS)
ENOUGH_STEPS = tuned(
    1000, "steps", "may be a whole run, even of fewer than MIN_EPOCHS epochs", CORPUS
)
FEW_STEPS = tuned(150, "steps", "too few if the loss still falls; shortest healthy run: 80", CORPUS)
FEW_STEPS_FALL = tuned(
    0.05, "constant loss", "fall over the last quarter: it still falls; healthy: 0.06", CORPUS
)
FEW_STEPS_SHARE = tuned(0.6, "constant loss", "least last loss of such a run; healthy: 0.5", CORPUS)
FEW_BATCHES = tuned(3, "steps of an epoch", "up to this, batches are so large that updates are few")
FAR_TOO_FEW_STEPS = tuned(40, "steps", "too few for any run", CORPUS)
FAR_TOO_FEW_SHARE = tuned(0.1, "constant loss", "least last loss of such a run", CORPUS)
SMALL_LAYER = tuned(8, "units", "the layer is too small, not the learning rate", CORPUS)
STILL_FALLING = tuned(
    0.02, "constant loss", "such a fall counts if a simple model is better", CORPUS
)
FALL = tuned(0.08, "constant loss", "fall over the last quarter, unfinished; healthy: 0.12", CORPUS)
RELATIVE_FALL = tuned(0.22, "last loss", "fall over the last quarter, too; healthy: 0.19", CORPUS)
LARGE_BATCH = tuned(25.0, "noise scales", "size of a batch, too large; healthy: 15", CORPUS)
MIN_BATCH = tuned(128, "rows", "smaller batches are never too large", CORPUS)
UNLEARNED = tuned(0.03, "constant loss", "a larger training loss leaves something to learn", CORPUS)
HURRIED_BATCH = tuned(
    8.0, "noise scales", "too large in a run of up to MANY_STEPS; healthy: 7.5", CORPUS
)
MANY_STEPS = tuned(500, "steps", "a run is short up to this", CORPUS)
HURRIED_SHARE = tuned(0.1, "constant loss", "least training loss for HURRIED_BATCH", CORPUS)

# Simple models
NEIGHBORS = tuned(10, "rows", "a nearest-neighbors prediction is the mean of this many")
MIN_BASELINE_ROWS = tuned(50, "rows", "no simple model is fitted to fewer")
MAX_ROWS = tuned(1_500, "rows", "simple models are fitted to at most this many")
MAX_FEATURES = tuned(2_000, "features", "simple models use at most this many")
RIDGE = tuned(1e-3, "mean square of a feature", "penalty of the linear model")
RANDOM_UNITS = tuned(128, "units", "width of the model of random units")
RIDGE_PENALTIES = tuned(
    (1e-4, 1e-3, 1e-2), "largest variance", "its penalties; the best one is used"
)
SIMPLE_MODELS = tuned(0.1, "seconds", "all simple models together take at most this long")
SECONDS_PER_PAIR = tuned(40e-9, "seconds", "most that a pair of rows costs (Xeon, 2026)")
SECONDS_PER_VALUE = tuned(450e-9, "seconds", "most that a value costs (Xeon, 2026)")
COPIES = tuned(
    0.5, "share of validation rows", "too many nearly equal training rows; healthy: 0.64", CORPUS
)
OF_COPIES = tuned(
    0.5, "errors of a simple model", "errors on COPIES, too small; healthy: 0.65", CORPUS
)
FEW_COPIES = tuned(0.25, "share of validation rows", "too many with an error below OF_FEW_COPIES")
OF_FEW_COPIES = tuned(0.25, "errors of a simple model", "too small; healthy: 0.65", CORPUS)
SOME_ERRORS = tuned(10, "rows", "least errors of the simple model for OF_FEW_COPIES")
COPY_DISTANCE = tuned(0.4, "distance of the tenth nearest row", "a nearer row is a near copy")
COPY_ROWS = tuned(100, "rows", "validation rows that are compared")
COPY_VALUES = tuned(1 << 20, "values", "most values of training rows that are compared")
TOO_GOOD = tuned(1e-3, "constant loss", "a validation error below this is too good")
HARD_ROWS = tuned(100, "rows", "TOO_GOOD needs this many that a constant prediction misses")
SURE_SHARE = tuned(0.2, "share of rows", "the sure rows: a simple model is surest of them")
SURE_ROWS = tuned(50, "rows", "least number of sure rows")
SURE = tuned(1e-4, "probability", "chance of a false report of a shift, over all features")
PROBABLE = tuned(2.0, "standard errors", "two models probably differ above this")
SMALL_LEAD = tuned(1e-3, "share of the error", "a lead of one model up to this does not matter")
CLEAR = tuned(3.5, "standard errors", "two models clearly differ above this; healthy: 3.3", CORPUS)
SHIFT = tuned(0.25, "distance", "between distribution functions, too large; healthy: 0.2", CORPUS)
CONTRADICTED = tuned(
    0.1, "share of sure rows", "too many have another class; healthy: 0.04", CORPUS
)
BY_CHANCE = tuned(0.05, "share of rows", "at most this many are near copies by chance")
FAR_NEIGHBORS = tuned(40, "rows", "the number of dimensions is measured up to this neighbor")
REPEATED = tuned(
    0.25, "share of validation rows", "too many equal training rows; healthy: 0.04", CORPUS
)
MOVED = tuned(
    2.5, "standard errors", "lead of the target beside a row, too large; healthy: 0.3", CORPUS
)
MOVED_GAIN = tuned(0.05, "share of squares", "least error that this target saves", CORPUS)
EVEN = tuned(
    0.57,
    "share among all rows",
    "labels are wrong if sure rows err so often; healthy: 0.49",
    CORPUS,
)
CODES = tuned(
    0.12, "share of rows", "gain in accuracy if targets are classes; counts, ranks: 0.06", CORPUS
)
ON_SCALE = tuned(15, "rows", "neighbors on each side, by output, that vote for the class of a row")
CHANCE_LINK = tuned(0.01, "probability", "chance of a false correlation, over all features")
SMALLEST_SPREAD = tuned(1e-6, "std(feature) x std(target)", "no correlation is computed up to this")
CODE_VALUES = tuned(30, "values", "a target may be codes up to this many")
LOSS_MISLEADS = tuned(2.0, "times", "relative squared error / relative loss, too large", CORPUS)
SIGNIFICANT = tuned(
    2.0, "standard errors", "by which CONTRADICTED must be exceeded; healthy: 2", CORPUS
)
MATERIAL = tuned(0.02, "lead over a constant", "too far behind the linear model", CORPUS)

# Text
NAME_CHARACTERS = tuned(60, "characters", "longest name of a column, a class or a layer")
LAYER_CHARACTERS = tuned(20, "characters", "longest name of a layer in a table")
TABLE_WIDTH = tuned(80, "characters", "width of a table")
