"""The tuned numbers of this room, each with its unit, its meaning and the script that chose it.

"Healthy" gives the most extreme value in the healthy set-ups of `CORPUS`.  A limit lies beyond it,
or a second condition of the verdict excludes these set-ups.  "Constant" is the loss of the best
constant prediction.
"""

from mlpengine.core.tuned import tuned

CORPUS = "benchmarks/diagnoses.py"

# Sampling
CAPACITY = tuned(512, "samples", "kept of a run; then every second one is dropped")
EVERY = tuned(50, "steps", "between samples")
STRETCH = tuned(
    10, "times", "factor of the sampling interval after DENSE_STEPS, if steps are short"
)
DENSE_STEPS = tuned(1000, "steps", "after which short steps are sampled more rarely")
SHORT_STEP = tuned(
    4_000_000,
    "parameters x rows",
    "below this a step is short: a sample takes longer than the step",
)
WATCH_EVERY = tuned(25, "steps", "between samples of loops of other libraries")
WATCHED_ROWS = tuned(
    1024, "rows", "of a batch whose activations are measured in loops of other libraries"
)
NOISE_DECAY = tuned(0.9, "share", "weight of the past in the gradient noise scale")
MIN_WINDOW_ROWS = tuned(256, "rows", "on which a unit must be 0 to be dead")
SATURATION_POINT = tuned(0.97, "share", "of half the range, beyond which a value is saturated")
LARGEST = tuned(1024.0, "pre-activation", "the largest in the search for the point of saturation")

# Spikes of the gradient norm
SPIKE_DEVIATIONS = tuned(4.0, "deviations", "of log norms above their mean make a spike")
SPIKE_DECAY = tuned(0.98, "share", "weight of the past in mean and deviation of log norms")
SPIKE_WARM_UP = tuned(10, "steps", "at the start that cannot be spikes")
WEIGHED = tuned(2_000, "norms", "that count; the weight of older ones is a rounding error")
LARGEST_EXPONENT = tuned(700.0, "nats", "the largest argument of exp in float64, rounded down")

# Before training
FIFTH = tuned(
    5, "place", "rank that the largest magnitude is compared with: up to four wrong rows are found"
)
FEW = tuned(20, "rows", "that any sound network can memorize")
TRIAL_STEPS = tuned(400, "steps", "in which these rows are memorized")
FEW_RATES = tuned((1e-2, 1e-3), "learning rates", "that are tried for it")
MEMORIZED_SHARE = tuned(0.1, "constant", "loss of memorized rows")
TOO_SLOW = tuned(100.0, "times", "below the suggested rate a rate is reported")
TOO_FAST = tuned(4.0, "times", "above the rate of the lowest loss a rate is reported")

# Learning rate range test
LOWEST_RATE = tuned(1e-7, "learning rate", "of the first step")
HIGHEST_RATE = tuned(10.0, "learning rate", "of the last step")
STEPS = tuned(160, "steps", "from the lowest to the highest rate")
SWEEPS = tuned(3, "sweeps", "with random orders of the rows; their losses are averaged")
MEASURED_ROWS = tuned(256, "rows", "the same in each step, so that a rate of 0 has a flat curve")
SMOOTHING_STEPS = tuned(3, "steps", "deviation of the Gaussian window: 0.15 decades")
DIVERGED = tuned(4.0, "first losses", "beyond which a sweep ends")
MIN_FALL = tuned(0.1, "first losses", "fall without which no rate is suggested")
SAFETY_FACTOR = tuned(6.0, "times", "lower than the rate of the lowest loss; 5 to 8 do as well")

# Size of steps
GUIDE_RATIO = tuned(1e-3, "update / weights", "of a network that learns, within a decade")
AIM = tuned(0.02, "update / weights", "of the first step; healthy: 0.005 to 0.06", CORPUS)
FAST_RATIO = tuned(0.3, "update / weights", "too large if learning suffers; healthy: 0.07", CORPUS)
VERY_FAST_RATIO = tuned(0.5, "update / weights", "too large even if the loss falls", CORPUS)
SLOW_RATIO = tuned(1e-4, "update / weights", "too small; healthy: from 2.8e-3", CORPUS)
SLOW_START = tuned(3e-3, "update / weights", "slow in the first step; healthy: 4.4e-3", CORPUS)
CLIPPED = tuned(0.9, "share of steps", "that are clipped; healthy: 0.1", CORPUS)
COEFFICIENT = tuned(
    0.05, "factor", "median of clipped norm / norm; below it, clipping is too strong", CORPUS
)
LARGE_MOMENTUM = tuned(0.97, "momentum", "healthy: 0.9", CORPUS)
SWINGS = tuned(0.1, "constant", "rise of the training loss over its minimum so far", CORPUS)
FADED = tuned(0.01, "peak", "of the learning rate; below it, the network no longer learns")
WARMING = tuned(0.75, "last rate", "below which the rate of half the run still warms up")
FADED_SHARE = tuned(0.5, "share of steps", "before the rate is so low; healthy: 0.9", CORPUS)
SMALL_BATCH = tuned(4, "rows", "of a batch, at least")
LARGE_DECAY = tuned(3.0, "exponent k", "of the shrinkage e^-k over the run; healthy: 0.7", CORPUS)
ERASING_DECAY = tuned(
    10.0, "exponent k", "that is noted whatever was learned; healthy: 2.4", CORPUS
)
HUGE_DECAY = tuned(5.0, "weight decay", "that no run needs")
USUAL_EPS = tuned(1e-7, "eps", "the greatest one that is a default")
LARGE_EPS = tuned(
    1.0,
    "gradients of a weight",
    "eps / usual gradient of a weight; too large above this; healthy: 2e-5",
    CORPUS,
)

# Layers, inputs and targets
STEEP = tuned(2.0, "decades", "between gradients of first and last layer; healthy: 0.8", CORPUS)
SMALL_SIGNAL = tuned(
    1e-3,
    "share",
    "deviation of the last hidden layer / of the first, in step 1; healthy: 0.2",
    CORPUS,
)
DEAD = tuned(0.4, "share of units", "that never fire; healthy: 0.19", CORPUS)
WELL_LEARNED = tuned(0.5, "constant", "loss below which dead units do no harm", CORPUS)
SATURATED_SHARE = tuned(0.5, "share of activations", "healthy: 0.18", CORPUS)
LARGE_INPUT = tuned(8.0, "root mean square", "of all features; healthy: 1", CORPUS)
SMALL_INPUT = tuned(0.01, "root mean square", "of all features; healthy: 0.5", CORPUS)
LARGE_FEATURE = tuned(8.0, "0.9 quantile", "of a feature's magnitude; healthy: 2.1", CORPUS)
UNUSUAL_INPUT = tuned(3.0, "root mean square", "from which features may explain a large loss")
LARGE_TARGET = tuned(30.0, "root mean square", "of the targets; healthy: 1", CORPUS)
OFF_CENTER = tuned(3.0, "deviations", "root mean square of the target; healthy: 1", CORPUS)
START_TIMES = tuned(10.0, "constant", "first loss; healthy: 2.7", CORPUS)
LOWEST_SCALE = tuned(
    0.5, "weight scale", "smallest of a usual initializer; ours: 0.95 to 1.5", CORPUS
)
HIGHEST_SCALE = tuned(
    2.5, "weight scale", "largest of a usual initializer; ours: 0.95 to 1.5", CORPUS
)

# Rows that stand out
OUTLIER_TIMES = tuned(
    30.0, "usual norms", "norm of a batch; healthy: 260 late in a run, see OUTLIER_NORM", CORPUS
)
OUTLIER_SHARE = tuned(0.9, "share", "of the batch's norms that one row has", CORPUS)
OUTLIER_NORM = tuned(5.0, "first norms", "below which late spikes do not count", CORPUS)
EXTREME_TIMES = tuned(20.0, "fifth largest values", "magnitude of a cell; healthy: 10", CORPUS)
SPIKES = tuned(0.02, "share of steps", "that are spikes; healthy: 0.004", CORPUS)
RARE_SHARE = tuned(0.5, "mean class", "a class with fewer rows is rare", CORPUS)
RECALL = tuned(0.12, "recall", "of a class that is hardly predicted; healthy: 0.6", CORPUS)
COMMON_RECALL = tuned(
    0.5,
    "recall",
    "mean of the other classes, from which the low recall of a rare class counts",
    CORPUS,
)

# Curves
LEARNED = tuned(0.98, "constant", "loss of a network that has learned something", CORPUS)
MIN_EPOCHS = tuned(5, "epochs", "below which curves are not judged")
SIGNAL = tuned(0.08, "share of squares", "r2 of a simple model that `noisy_labels` needs", CORPUS)
COMMON_CLASS = tuned(0.7, "share of rows", "of one class, from which `labels` is a note", CORPUS)
RELATED = tuned(
    2.0,
    "standard errors",
    "between a simple model and a constant, if features tell of the target; shuffled: 1.6",
    CORPUS,
)
OVERFITTED = tuned(
    1.15,
    "constant",
    "best validation loss, from which overfitting may be the cause, not `labels`",
    CORPUS,
)
FITTED = tuned(0.9, "constant", "training loss above which nothing overfits", CORPUS)
BEHIND = tuned(0.1, "constant", "error beyond a simple model's; healthy: 0.02", CORPUS)
RISE = tuned(0.08, "constant", "rise of the validation loss; healthy: 0.04", CORPUS)
RELATIVE_RISE = tuned(0.1, "lowest loss", "rise of the validation loss", CORPUS)
MEMORIZED_GAP = tuned(
    0.1,
    "constant",
    "least validation - training loss of `overfitting`, with MEMORIZED; healthy: 0.3",
    CORPUS,
)
MEMORIZED = tuned(
    15.0,
    "times",
    "least validation / training loss of `overfitting`; healthy: 1.8 at a gap of 0.3",
    CORPUS,
)
LARGE_DROPOUT = tuned(0.6, "rate", "of dropout; healthy: 0.3", CORPUS)
DROPOUT_TIMES = tuned(1.5, "times", "training over validation loss; healthy: 1.1", CORPUS)
DROPOUT_SHARE = tuned(0.3, "constant", "training loss from which dropout costs", CORPUS)
ENOUGH_STEPS = tuned(
    1000, "steps", "from which fewer than MIN_EPOCHS epochs may be a whole run", CORPUS
)
FEW_STEPS = tuned(
    150, "steps", "fewer are too few if the loss still falls; shortest healthy run: 80", CORPUS
)
FEW_STEPS_FALL = tuned(0.05, "constant", "its fall over the last quarter; healthy: 0.06", CORPUS)
FEW_STEPS_SHARE = tuned(0.6, "constant", "its last loss, at least; healthy: 0.5", CORPUS)
FEW_BATCHES = tuned(3, "steps", "in an epoch, up to which large batches cause too few updates")
FAR_TOO_FEW_STEPS = tuned(40, "steps", "too few for any run", CORPUS)
FAR_TOO_FEW_SHARE = tuned(0.1, "constant", "last loss above which that is reported", CORPUS)
SMALL_LAYER = tuned(
    8, "units", "of the smallest layer; up to this the network is too small, not the rate", CORPUS
)
STILL_FALLING = tuned(
    0.02, "constant", "fall over the last quarter that counts if a simple model is better", CORPUS
)
FALL = tuned(0.08, "constant", "fall over the last quarter; healthy: 0.12", CORPUS)
RELATIVE_FALL = tuned(0.22, "last loss", "fall over the last quarter; healthy: 0.19", CORPUS)
LARGE_BATCH = tuned(25.0, "noise scales", "of a batch; healthy: 15", CORPUS)
MIN_BATCH = tuned(128, "rows", "of a batch that is judged", CORPUS)
UNLEARNED = tuned(0.03, "constant", "training loss that leaves something to learn", CORPUS)
HURRIED_BATCH = tuned(8.0, "noise scales", "of a batch in a short run; healthy: 7.5", CORPUS)
MANY_STEPS = tuned(500, "steps", "up to which a run is short", CORPUS)
HURRIED_SHARE = tuned(0.1, "constant", "training loss of a short run", CORPUS)

# Simple models
NEIGHBORS = tuned(10, "rows", "nearest ones; their mean is a prediction")
MIN_BASELINE_ROWS = tuned(50, "rows", "below which no simple model is fitted")
MAX_ROWS = tuned(1_500, "rows", "on which simple models are fitted")
MAX_FEATURES = tuned(2_000, "features", "of simple models")
RIDGE = tuned(1e-3, "mean square of a feature", "penalty of the linear model")
RANDOM_UNITS = tuned(128, "units", "of the model of random units")
RIDGE_PENALTIES = tuned((1e-4, 1e-3, 1e-2), "largest variance", "its penalties; the best counts")
SIMPLE_MODELS = tuned(0.1, "seconds", "bound of the time of all simple models")
SECONDS_PER_PAIR = tuned(40e-9, "seconds", "bound of the time of a pair of rows (Xeon, 2026)")
SECONDS_PER_VALUE = tuned(450e-9, "seconds", "bound of the time of a value (Xeon, 2026)")
COPIES = tuned(
    0.5,
    "share of validation rows",
    "that nearly equal a training row; healthy: 0.64, so OF_COPIES must hold, too",
    CORPUS,
)
OF_COPIES = tuned(
    0.5,
    "errors of a simple model",
    "validation error of the network on these rows, below this; healthy: 0.65",
    CORPUS,
)
COPY_DISTANCE = tuned(
    0.4,
    "distance of the tenth nearest row",
    "of the nearest training row; below it, a row is a near copy",
)
BY_CHANCE = tuned(0.05, "share of rows", "that may be near copies by chance")
FAR_NEIGHBORS = tuned(40, "rows", "nearest ones; with NEIGHBORS they give the dimensions of rows")
REPEATED = tuned(
    0.25, "share of validation rows", "equal to training rows beyond chance; healthy: 0.04", CORPUS
)
MOVED = tuned(
    3.5,
    "standard errors",
    "by which a target beside its row is explained better; healthy: 1.6",
    CORPUS,
)
MOVED_GAIN = tuned(0.05, "share of squared error", "that it saves, at least", CORPUS)
COPY_ROWS = tuned(100, "rows", "of validation that are compared")
COPY_VALUES = tuned(1 << 20, "values", "of training rows that are compared")
TOO_GOOD = tuned(1e-3, "constant", "validation error that is too good")
HARD_ROWS = tuned(100, "rows", "that a constant prediction must miss for that")
SURE_SHARE = tuned(0.2, "share of rows", "that a model is surest of")
SURE_ROWS = tuned(50, "rows", "that a model is surest of, at least")
SURE = tuned(1e-4, "probability", "of a shift reported by chance, over all features")
PROBABLE = tuned(2.0, "standard errors", "by which two models differ probably")
CLEAR = tuned(3.5, "standard errors", "by which they differ clearly; healthy: 3.3", CORPUS)
SHIFT = tuned(0.25, "distance", "of two distribution functions; healthy: 0.2", CORPUS)
CONTRADICTED = tuned(0.1, "share of sure rows", "of another class; healthy: 0.04", CORPUS)
EVEN = tuned(
    0.57,
    "share among all rows",
    "of it in sure rows, SIGNIFICANT errors less; above it, labels are wrong; healthy: 0.49",
    CORPUS,
)
CODES = tuned(
    0.12,
    "share of rows",
    "gain in accuracy with the target as classes; counts, ranks: up to 0.06",
    CORPUS,
)
ON_SCALE = tuned(
    15, "rows", "on either side, in the order of the output, that vote for the class of a row"
)
CHANCE_LINK = tuned(0.01, "probability", "of a correlation by chance, over all features")
SMALLEST_SPREAD = tuned(
    1e-6, "product", "std(feature) x std(target); not above it, there is no correlation"
)
CODE_VALUES = tuned(30, "values", "of a target, up to which they may be codes")
LOSS_MISLEADS = tuned(
    2.0, "times", "relative squared error / relative loss; above it, the loss misleads", CORPUS
)
SIGNIFICANT = tuned(
    2.0,
    "standard errors",
    "by which the contradicted share must exceed CONTRADICTED; healthy: 2",
    CORPUS,
)
MATERIAL = tuned(
    0.02, "lead over a constant", "that the network must trail the linear model by", CORPUS
)

# Text
NAME_CHARACTERS = tuned(60, "characters", "of the name of a column, a class or a layer")
LAYER_CHARACTERS = tuned(20, "characters", "of a layer's name in a table")
TABLE_WIDTH = tuned(80, "characters", "of a table")
