"""The tuned numbers of this room, each with its unit, its meaning and the script that chose it.

Limits of verdicts differ from everything measured in the healthy set-ups of `CORPUS` by a factor of
two or more; the extremes measured there follow "healthy".  "Constant" is the loss of the best
constant prediction.
"""

from mlpengine.core.tuned import tuned

CORPUS = "benchmarks/diagnoses.py"

# Sampling
CAPACITY = tuned(512, "samples", "kept of a run; then every second one is dropped")
EVERY = tuned(50, "steps", "between samples")
STRETCH = tuned(10, "times", "longer distances between samples of short steps, later")
DENSE_STEPS = tuned(1000, "steps", "after which short steps are sampled more rarely")
SHORT_STEP = tuned(4_000_000, "parameters x rows", "below this a sample is slow beside a step")
NOISE_DECAY = tuned(0.9, "share", "weight of the past in the gradient noise scale")
MIN_WINDOW_ROWS = tuned(256, "rows", "on which a unit must be 0 to be dead")
SATURATION_POINT = tuned(0.97, "share", "of half the range, beyond which a value is saturated")
LARGEST = tuned(1024.0, "pre-activation", "up to which saturation may begin")

# Spikes of the gradient norm
SPIKE_DEVIATIONS = tuned(4.0, "deviations", "of log norms above their mean make a spike")
SPIKE_DECAY = tuned(0.98, "share", "weight of the past in mean and deviation of log norms")
SPIKE_WARM_UP = tuned(10, "steps", "at the start that cannot be spikes")
WEIGHED = tuned(2_000, "norms", "that count; the weight of older ones is a rounding error")
LARGEST_EXPONENT = tuned(700.0, "nats", "the largest argument of exp in float64, rounded down")

# Before training
FIFTH = tuned(5, "place", "of the magnitude compared with the largest: four wrong rows may hide")
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
COEFFICIENT = tuned(0.05, "factor", "of clipping, usually", CORPUS)
LARGE_MOMENTUM = tuned(0.97, "momentum", "healthy: 0.9", CORPUS)
SWINGS = tuned(0.1, "constant", "rise of the training loss over its minimum so far", CORPUS)
LARGE_DECAY = tuned(3.0, "exponent k", "of the shrinkage e^-k over the run; healthy: 0.7", CORPUS)
HUGE_DECAY = tuned(5.0, "weight decay", "that no run needs")
USUAL_EPS = tuned(1e-7, "eps", "the greatest one that is a default")
LARGE_EPS = tuned(1.0, "gradients of a weight", "eps; healthy: 2e-5", CORPUS)

# Layers, inputs and targets
STEEP = tuned(2.0, "decades", "between gradients of first and last layer; healthy: 0.8", CORPUS)
SMALL_SIGNAL = tuned(1e-3, "share", "of the first layer's deviation; healthy: 0.2", CORPUS)
DEAD = tuned(0.4, "share of units", "that never fire; healthy: 0.19", CORPUS)
WELL_LEARNED = tuned(0.5, "constant", "loss below which dead units do no harm", CORPUS)
SATURATED_SHARE = tuned(0.5, "share of activations", "healthy: 0.18", CORPUS)
LARGE_INPUT = tuned(8.0, "root mean square", "of all features; healthy: 1", CORPUS)
SMALL_INPUT = tuned(0.01, "root mean square", "of all features; healthy: 0.5", CORPUS)
LARGE_FEATURE = tuned(8.0, "0.9 quantile", "of a feature's magnitude; healthy: 2.1", CORPUS)
UNUSUAL_INPUT = tuned(3.0, "root mean square", "from which features may explain a large loss")
LARGE_TARGET = tuned(30.0, "root mean square", "of the targets; healthy: 1", CORPUS)
START_TIMES = tuned(10.0, "constant", "first loss; healthy: 2.7", CORPUS)
LOWEST_SCALE = tuned(0.5, "weight scale", "of an initializer; theirs: from 0.95", CORPUS)
HIGHEST_SCALE = tuned(2.5, "weight scale", "of an initializer; theirs: to 1.5", CORPUS)

# Rows that stand out
OUTLIER_TIMES = tuned(30.0, "usual norms", "of a batch; healthy: 260 late in a run", CORPUS)
OUTLIER_SHARE = tuned(0.9, "share", "of the batch's norms that one row has", CORPUS)
OUTLIER_NORM = tuned(5.0, "first norms", "below which late spikes do not count", CORPUS)
EXTREME_TIMES = tuned(50.0, "fifth largest values", "magnitude of a cell; healthy: 10", CORPUS)
SPIKES = tuned(0.02, "share of steps", "that are spikes; healthy: 0.004", CORPUS)
RARE_SHARE = tuned(0.5, "mean class", "rows of a class that is rare", CORPUS)
RECALL = tuned(0.12, "recall", "of a class that is hardly predicted; healthy: 0.6", CORPUS)
COMMON_RECALL = tuned(0.5, "recall", "mean of the other classes above which that counts", CORPUS)

# Curves
LEARNED = tuned(0.98, "constant", "loss of a network that has learned something", CORPUS)
MIN_EPOCHS = tuned(5, "epochs", "below which curves are not judged")
CHANCE = tuned(0.8, "constant", "validation loss of a tenth of the epochs on related targets")
SIGNAL = tuned(0.08, "share of squares", "of a relation; healthy: 0.2, shuffled: 0.06", CORPUS)
RELATION = tuned(0.1, "share of squares", "explained only if targets belong to rows", CORPUS)
GAP = tuned(0.04, "constant", "validation above training loss of unrelated targets", CORPUS)
FITTED = tuned(0.9, "constant", "training loss above which nothing overfits", CORPUS)
BEHIND = tuned(0.1, "constant", "error beyond a simple model's; healthy: 0.02", CORPUS)
RISE = tuned(0.08, "constant", "rise of the validation loss; healthy: 0.04", CORPUS)
RELATIVE_RISE = tuned(0.1, "lowest loss", "rise of the validation loss", CORPUS)
MEMORIZED_GAP = tuned(0.1, "constant", "validation above training loss; healthy: 0.3", CORPUS)
MEMORIZED = tuned(15.0, "times", "validation over training loss; healthy: 1.8 at 0.3", CORPUS)
LARGE_DROPOUT = tuned(0.6, "rate", "of dropout; healthy: 0.3", CORPUS)
DROPOUT_TIMES = tuned(1.5, "times", "training over validation loss; healthy: 1.1", CORPUS)
DROPOUT_SHARE = tuned(0.3, "constant", "training loss from which dropout costs", CORPUS)
FEW_STEPS = tuned(150, "steps", "of a run that still falls; healthy: 80", CORPUS)
FEW_STEPS_FALL = tuned(0.05, "constant", "its fall over the last quarter; healthy: 0.06", CORPUS)
FEW_STEPS_SHARE = tuned(0.6, "constant", "its last loss, at least; healthy: 0.5", CORPUS)
FEW_BATCHES = tuned(3, "steps", "of an epoch up to which batches are to blame")
FAR_TOO_FEW_STEPS = tuned(40, "steps", "too few for any run", CORPUS)
FAR_TOO_FEW_SHARE = tuned(0.1, "constant", "last loss above which that is reported", CORPUS)
SMALL_LAYER = tuned(8, "units", "of a layer that is too small rather than too slow", CORPUS)
STILL_FALLING = tuned(0.02, "constant", "fall of a run behind a simple model", CORPUS)
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
MAX_FEATURES = tuned(500, "features", "of simple models")
RIDGE = tuned(1e-3, "mean square of a feature", "penalty of the linear model")
RANDOM_UNITS = tuned(128, "units", "of the model of random units")
RIDGE_PENALTIES = tuned((1e-4, 1e-3, 1e-2), "largest variance", "its penalties; the best counts")
SIMPLE_MODELS = tuned(0.1, "seconds", "bound of the time of all simple models")
SECONDS_PER_PAIR = tuned(40e-9, "seconds", "bound of the time of a pair of rows (Xeon, 2026)")
SECONDS_PER_VALUE = tuned(450e-9, "seconds", "bound of the time of a value (Xeon, 2026)")
SURE_SHARE = tuned(0.2, "share of rows", "that a model is surest of")
SURE_ROWS = tuned(50, "rows", "that a model is surest of, at least")
SURE = tuned(1e-4, "probability", "of a shift reported by chance, over all features")
PROBABLE = tuned(2.0, "standard errors", "by which two models differ probably")
CLEAR = tuned(3.5, "standard errors", "by which they differ clearly; healthy: 3.3", CORPUS)
SHIFT = tuned(0.25, "distance", "of two distribution functions; healthy: 0.2", CORPUS)
CONTRADICTED = tuned(0.1, "share of sure rows", "of another class; healthy: 0.04", CORPUS)
EVEN = tuned(0.5, "share among all rows", "of the same; overlap is not even; healthy: 0.43", CORPUS)
SIGNIFICANT = tuned(2.0, "standard errors", "of this share above its limit; healthy: 2", CORPUS)
MATERIAL = tuned(0.02, "lead over a constant", "lead of a linear prediction that matters", CORPUS)
UNRELATED = tuned(0.85, "constant", "median validation loss of the second half", CORPUS)

# Text
NAME_CHARACTERS = tuned(60, "characters", "of the name of a column, a class or a layer")
LAYER_CHARACTERS = tuned(20, "characters", "of a layer's name in a table")
TABLE_WIDTH = tuned(80, "characters", "of a table")
