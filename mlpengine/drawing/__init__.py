"""Charts and tables as HTML and SVG, for report pages and notebooks."""
