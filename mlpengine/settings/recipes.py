"""Recipes: settings of a network and its training that were measured together."""

from typing import Literal, TypeAlias

from mlpengine.optim import AdamW, CosineSchedule, settings_class
from mlpengine.settings.features import FeatureSettings
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.run import RunSettings
from mlpengine.settings.training import LINEAR, SMOOTH, EarlyStopping, MemberType, TrainingSettings

MIDDLE = 20_000
"""Number of rows that estimators assume before they see the table."""

Sizes: TypeAlias = tuple[
    float, list[int], tuple[float, float], float, int, int, int | Literal["auto"]
]

PLAIN: tuple[Sizes, ...] = (
    (1_000, [64, 64], (0.003, 0.005), 0.1, 100, 16, "auto"),
    (4_000, [32, 32], (0.005, 0.005), 0.1, 60, 32, "auto"),
    (MIDDLE, [256, 256], (0.002, 0.008), 0.05, 60, 128, 20),
    (100_000, [128, 128], (0.002, 0.002), 0.01, 48, 256, 10),
    (float("inf"), [256, 128], (0.002, 0.002), 0.01, 40, 256, 20),
)
"""Settings by number of rows: maximum rows, hidden sizes, learning rates (for classes and for
numbers), weight decay, epochs, batch size, patience.

Measured with eight folds (November 2026).  The settings for up to 4,000 rows were measured with
networks of two member types in each fold.
"""


def recipe(task: str, rows: float) -> RunSettings:
    """Return the settings for a task and a number of rows."""
    _, hidden, rates, decay, epochs, batch, patience = next(row for row in PLAIN if rows <= row[0])
    lr = rates[task == "regression"]
    return RunSettings(
        features=FeatureSettings(transform_target="auto" if task == "regression" else "none"),
        network=NetworkSettings(hidden=tuple(hidden)),
        training=TrainingSettings(
            optimizer=settings_class(AdamW)(lr=lr, weight_decay=decay),
            schedule=CosineSchedule(),
            epochs=epochs,
            batch_size=batch,
            clip_norm=1.0,
            early_stopping=EarlyStopping(patience),
        ),
    )


COPIES, MADE_ROWS = 20, 100_000
"""Synthetic rows for each training row of a student, and maximum synthetic rows in total."""

STUDENT_BATCH, STUDENT_STEPS, STUDENT_EPOCHS = 32, 15_000, 6
"""Batch size, minimum steps and minimum epochs of a student's training."""

FEW_ROWS = 1_000
"""Up to this number of training rows, a student has a lower learning rate."""


def made_rows_for(rows: int) -> int:
    """Return the number of synthetic rows for a number of training rows."""
    return min(COPIES * rows, MADE_ROWS)


def student_recipe(rows: int) -> RunSettings:
    """Return the settings of a student (distillation) for a number of training rows.

    The settings were measured (November 2026); a teacher was the mean of 16 networks.  Each of
    these changes made the student worse: no synthetic rows; no quantile bins; relu or silu; a tenth
    of the weight decay; three times the steps; the higher learning rate on few rows.
    """
    steps = (rows + made_rows_for(rows)) / STUDENT_BATCH
    lr = 0.001 if rows <= FEW_ROWS else 0.003
    return RunSettings(
        network=NetworkSettings(hidden=(64, 64), activation=("mish",)),
        training=TrainingSettings(
            optimizer=settings_class(AdamW)(lr=lr, weight_decay=0.03),
            schedule=CosineSchedule(),
            epochs=max(STUDENT_EPOCHS, round(STUDENT_STEPS / steps)),
            batch_size=STUDENT_BATCH,
            clip_norm=1.0,
        ),
    )


FOLDS, ROWS_OF_FOLD = 8, 10
"""Default number of folds, and minimum number of rows in a fold."""

FOLDED_ROWS = 100_000
"""Maximum rows for folds.  With more rows, folds gain little, and one network is trained."""


def folds_for(rows: int, blocks: int | None = None) -> int | None:
    """Return the number of folds for a table; None if there are too few or very many rows.

    `blocks` is the number of distinct groups or times of the rows; None without groups and times.
    There are at most half as many folds as blocks, so that enough blocks are left for the test.
    """
    folds = min(FOLDS, rows // ROWS_OF_FOLD, FOLDS if blocks is None else blocks // 2)
    return folds if folds > 1 and rows <= FOLDED_ROWS else None


def validation_share_for(rows: int) -> float:
    """Return the share of validation rows for a training without folds."""
    return 0.05 if rows > FOLDED_ROWS else 0.1


ENCODED_COLUMNS, ENCODED_ROWS = 300, 100
"""Maximum columns and minimum rows for features of quantile bins."""

SEVERAL_MEMBERS_ROWS = 4_000
"""Up to this number of rows, each fold has the member type `plain` in addition to `piecewise`."""

LINEAR_VALUES = 1 << 22
"""Maximum rows times columns for linear members, up to `SEVERAL_MEMBERS_ROWS` rows."""

SMOOTH_FEATURES, SMOOTH_ROWS = 40, 20_000
"""Maximum features and rows for smooth members."""


def encodes(rows: int, numbers: int) -> bool:
    """Return whether the columns of numbers also get features of their quantile bins.

    `numbers` is the number of these columns.
    """
    return 0 < numbers <= ENCODED_COLUMNS and rows >= ENCODED_ROWS


def members_for(
    rows: int, columns: int, *, encoded: bool, smooth_features: int | None = None
) -> tuple[MemberType, ...]:
    """Return the ensemble member types; () if all members are of one type.

    `smooth_features` is the number of features, or None for a table on which smooth members cannot
    train: a task other than regression, or several targets with missing values.
    """
    if folds_for(rows) is None:
        return ()
    features = SMOOTH_FEATURES + 1 if smooth_features is None else smooth_features
    is_small = features <= SMOOTH_FEATURES and rows <= SMOOTH_ROWS
    smooth: tuple[MemberType, ...] = (SMOOTH,) if is_small else ()
    if rows > SEVERAL_MEMBERS_ROWS:
        return ("piecewise", LINEAR, *smooth) if encoded else ()
    by_steps: tuple[MemberType, ...] = ("plain", "piecewise") if encoded else ("plain",)
    members = (*by_steps, LINEAR) if rows * columns <= LINEAR_VALUES else by_steps
    members += smooth
    return members if len(members) > 1 else ()
