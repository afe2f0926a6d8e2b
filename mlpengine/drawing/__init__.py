"""Charts and tables as HTML and SVG, for pages and for cells of notebooks."""
