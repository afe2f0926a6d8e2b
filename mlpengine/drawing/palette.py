"""Colors of charts."""

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56B4E9")
DARK = ("#56B4E9", "#F28E2B", "#3DC79B", "#E59ECA", "#F0E442", "#FFFFFF")
"""Colors of lines on white and on black that color-blind readers distinguish.

Source: Okabe and Ito 2008.
"""
