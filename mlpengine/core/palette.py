"""Colors and words of the report."""

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56B4E9")
DARK = ("#56B4E9", "#F28E2B", "#3DC79B", "#E59ECA", "#F0E442", "#FFFFFF")
"""Colors of lines on white and on black that color-blind readers distinguish.

Source: Okabe and Ito 2008.
"""

DISPLAY_NAMES = {
    "brier": "Brier score",
    "lr": "learning rate",
    "macro_f1": "macro F1",
    "mae": "MAE",
    "mape": "MAPE",
    "nll": "NLL",
    "r2": "R²",
    "rmse": "RMSE",
    "rmsle": "RMSLE",
    "roc_auc": "ROC-AUC",
}


def shown_name(name: str) -> str:
    """Return the name of a metric or a column of metrics.csv as people write it."""
    return DISPLAY_NAMES.get(name, name.replace("_", " "))
