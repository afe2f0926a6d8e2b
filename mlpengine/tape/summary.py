"""A tape as a table: what is computed, from what, and how many bytes training on it takes."""

from collections.abc import Sequence

from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.forward import Checkpointing, ForwardPlan
from mlpengine.tape.tape import Node, Tape


def planned_bytes(tape: Tape, outputs: Sequence[Node], checkpointing: Checkpointing) -> int:
    """Return the bytes of values and gradients that a training program would plan."""
    forward = ForwardPlan(tape, outputs, checkpointing=checkpointing)
    wanted = [n for n in tape.nodes if n.is_leaf and n.wants_grad]
    return forward.nbytes + BackwardPlan(forward, wanted).nbytes


def summarize(tape: Tape, outputs: Sequence[Node], checkpointing: Checkpointing) -> str:
    """Return the summary that `Tape.summary` prints; nothing is allocated for it.

    Units: bytes.
    """
    made_by = {y.index: r for r in tape.records for y in r.outputs}
    rows = [("node", "name", "made by", "shape", "bytes")]
    for n in tape.nodes:
        record = made_by.get(n.index)
        reads = [str(x.index) for x in record.operands if x is not None] if record else []
        origin = f"{record.op.name}({', '.join(reads)})" if record else n.kind
        rows.append((str(n.index), n.name, origin, str(n.spec), f"{n.spec.nbytes:,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    count = sum(p.spec.size for p in tape.parameters)
    chosen = tuple(outputs) or (tape.nodes[-1],)
    keep = planned_bytes(tape, chosen, "keep")
    lines += [
        f"parameters: {count:,} in {len(tape.parameters)} arrays, "
        f"{sum(p.spec.nbytes for p in tape.parameters):,} bytes",
        f"planned for values and gradients: {keep:,} bytes",
    ]
    if checkpointing == "balanced":
        saved = keep - planned_bytes(tape, chosen, "balanced")
        lines.append(f"balanced checkpointing saves {saved:,} bytes ({saved / max(keep, 1):.0%})")
    return "\n".join(lines)
