"""A tape as a table: the ops, their operands, and the bytes that training takes."""

from collections.abc import Sequence

from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.forward import ForwardPlan
from mlpengine.tape.record import Recorded, Value
from mlpengine.tape.rematerialization import Rematerialization


def planned_bytes(
    tape: Recorded, outputs: Sequence[Value], rematerialization: Rematerialization
) -> int:
    """Return the bytes of values and gradients that a training program would plan."""
    forward = ForwardPlan(tape, outputs, rematerialization=rematerialization)
    wanted = [n for n in tape.nodes if n.is_leaf and n.wants_grad]
    return forward.nbytes + BackwardPlan(forward, wanted).nbytes


def summarize(
    tape: Recorded, outputs: Sequence[Value], rematerialization: Rematerialization
) -> str:
    """Return the text of `Tape.summary`; the program is planned, but no buffers are allocated.

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
    parameters = [n.spec for n in tape.nodes if n.kind == "parameter"]
    count = sum(spec.size for spec in parameters)
    roots = tuple(outputs) or (tape.nodes[-1],)
    keep = planned_bytes(tape, roots, "keep")
    lines += [
        f"parameters: {count:,} in {len(parameters)} arrays, "
        f"{sum(spec.nbytes for spec in parameters):,} bytes",
        f"planned for values and gradients: {keep:,} bytes",
    ]
    if rematerialization == "balanced":
        saved = keep - planned_bytes(tape, roots, "balanced")
        lines.append(
            f"balanced rematerialization saves {saved:,} bytes ({saved / max(keep, 1):.0%})"
        )
    return "\n".join(lines)
