"""The op table: one row per variant, gathered from the files of the families."""

import cases_activations
import cases_arithmetic
import cases_elementwise
import cases_images
import cases_indexing
import cases_linalg
import cases_losses
import cases_normalization
import cases_reductions
import cases_sequence
import cases_shape
from case import Case

FAMILIES = (
    cases_arithmetic,
    cases_elementwise,
    cases_activations,
    cases_linalg,
    cases_images,
    cases_reductions,
    cases_shape,
    cases_indexing,
    cases_normalization,
    cases_sequence,
    cases_losses,
)

CASES: list[Case] = [case for family in FAMILIES for case in family.CASES]
