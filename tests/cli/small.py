"""The small config of the tests of the command line."""

SMALL = """\
data: {source: penguins}
model: {hidden: [4]}
training: {epochs: 3}
report: false
"""
