"""`mlpengine sweep`: train a config with many settings, in worker processes."""

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mlpengine.config import ConfigFile, parse_override
from mlpengine.config.build import load_data, trainer_of
from mlpengine.config.load import load_config
from mlpengine.config.space import load_sweep
from mlpengine.config.sweep import BEST, SETTINGS, SWEEP, SweepSection
from mlpengine.core.errors import RunError, UsageError
from mlpengine.core.files import pasted, write_atomically
from mlpengine.core.system import EXIT_CODES, START_METHOD, interrupt, start_worker
from mlpengine.core.wording import plural
from mlpengine.data.tables import DATASETS
from mlpengine.step.blas_threads import cores
from mlpengine.training.run_directory import RunDirectory

from .options import AS_JSON, DIRECTORY_PATH, QUIET_OPTION, overrides_like
from .outcome import shortest
from .ranks import launched
from .stopping import Stopping, leave, stops
from .streams import say

if TYPE_CHECKING:
    from .study import Study

PRINTED_TRIALS = 10

EPILOG = """\b
Examples:
  mlpengine sweep sweep.yaml --workers 2
  mlpengine sweep sweep.yaml --set sweep.trials=100 --set training.epochs=50
  mlpengine sweep --join runs/sweep                 # resume, or add workers from another shell
  mlpengine train runs/sweep/best.yaml

\b
The config needs a section sweep:
  sweep:
    trials: 60
    metric: loss                # of the validation rows, or out-of-fold
    sampler: tpe                # or random, grid
    pruner: median              # or none, hyperband
    space:
      optimizer.lr: {log: [1e-4, 1e-1]}
      model.hidden: {choice: [[64], [128, 64]]}
      model.dropout: {range: [0, 0.5]}
      training.batch_size: {int: [16, 256]}
"""


@click.command("sweep", epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--join",
    type=DIRECTORY_PATH,
    metavar="SWEEP",
    help="Resume a sweep, or add workers to a running sweep; takes no CONFIG.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Number of worker processes; each has one thread.  Default: 1, but all cores for random "
    "and grid without pruner.",
)
@click.option(
    "-o",
    "--out",
    type=DIRECTORY_PATH,
    help="Directory of the sweep; by default runs/<name>. A name in use gets -002, -003, ...",
)
@overrides_like("sweep.trials=9")
@QUIET_OPTION
@AS_JSON
@click.option("--worker", is_flag=True, hidden=True)
def command(
    config: Path | None,
    join: Path | None,
    workers: int | None,
    out: Path | None,
    settings: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    worker: bool,
) -> None:
    """Train the YAML file CONFIG with different values of some keys, and find the best values.

    Each trial is an ordinary run, in a directory below the directory of the sweep.  Workers may be
    added, stopped or killed at any time.  Another worker, or the next --join, repeats their
    unfinished trials.
    """
    from .study import Study
    from .trials import Worker

    if join is not None and (config or out or settings):
        raise UsageError("--join: a sweep keeps its settings; give only its directory")
    with stops(quiet=worker) as state:
        if config is not None:
            join = begin(config, settings, out, workers, quiet=quiet)
        elif join is None:
            raise UsageError("sweep: give a CONFIG, or --join SWEEP (mlpengine sweep --help)")
        study = Study(join)
        count = 1 if worker else worker_count(study.sweep, workers)
        if count == 1:
            Worker(study, state, quiet=quiet).run(os.getppid() if worker else None)
        code = run_workers(join, count, state, quiet=quiet) if count > 1 else 0
        if not worker and not code:
            outcome = finish(study)
            try:
                say(json.dumps(outcome) if as_json else sweep_text(study, outcome))
            except BrokenPipeError as error:
                error.filename = str(shortest(join))  # the message names the sweep
                raise
    leave(state)
    if code:
        raise SystemExit(code)


def begin(
    config: Path, settings: Iterable[str], out: Path | None, workers: int | None, *, quiet: bool
) -> Path:
    """Check a sweep, read its data once, make its directory and queue its trials."""
    from .study import Study
    from .trials import QUIET

    rank, ranks = launched()
    if ranks > 1:  # each rank would begin a sweep
        if rank:
            raise SystemExit(UsageError.exit_code)
        raise UsageError(
            f"sweep: must begin in one process (mpiexec started {ranks}); start it without mpiexec "
            f"and give --workers {ranks}, or then run `mpiexec ... mlpengine sweep --join SWEEP`"
        )
    given = list(settings)
    file, section = load_sweep(config, [parse_override(text) for text in given])
    number = worker_count(section, workers)
    check_data(load_config(config, [parse_override(text) for text in (*given, *QUIET)]))
    given += located(file)
    raw, name = file.document.raw, file.name
    record = {"name": name, "settings": given, "config_sha256": sha256(raw).hexdigest()}
    directory = RunDirectory.create(out or Path("runs") / name)
    with directory, ExitStack() as on_failure:
        on_failure.callback(shutil.rmtree, directory.path, ignore_errors=True)
        directory.write(SWEEP, raw)
        directory.write_json(SETTINGS, record)
        Study(directory.path, begins=True)
        on_failure.pop_all()
    if not quiet:
        count = plural(section.count, "trial")
        say(f"sweep    {count} of {config}, {plural(number, 'worker')}", err=True)
        say(f"run      {shortest(directory.path)}", err=True)
    return directory.path


def worker_count(section: SweepSection, given: int | None) -> int:
    """Return `given`; by default 1 if trials depend on earlier trials, else the number of cores."""
    if given is not None:
        return given
    learns = section.sampler == "tpe" or section.pruner != "none"
    return 1 if learns else min(cores(), section.count)


def check_data(file: ConfigFile) -> None:
    """Read the data; check that the config can train and that its task has the sweep's metric."""
    trainer = trainer_of(load_data(file))
    if file.config.sweep is not None:
        with file.errors_at("sweep", "metric"):
            trainer.task.watch(file.config.sweep.metric)


def located(file: ConfigFile) -> list[str]:
    """Return settings that replace the paths of data files by absolute paths."""
    settings = []
    for key in ("source", "validation_source", "test_source"):
        source = getattr(file.config.data, key)
        path = file.find(source) if source and source not in DATASETS else None
        if path:
            settings.append(f"data.{key}={json.dumps(str(path))}")
    return settings


def run_workers(directory: Path, count: int, state: Stopping, *, quiet: bool) -> int:
    """Run worker processes to their end; return the exit code of a worker that failed, or 0.

    An error in one worker stops all workers.  If a worker is killed, others repeat its trial.
    """
    context: Any = get_context(START_METHOD)
    words = ["sweep", "--join", str(directory), "--worker", *(["--quiet"] if quiet else [])]
    running = [context.Process(target=_work, args=(words,)) for _ in range(count)]
    for process in running:
        process.start()

    def stop() -> None:
        for process in running:
            if process.exitcode is None:
                interrupt(process.pid)

    state.attach(stop)
    code = 0
    while running:
        wait([process.sentinel for process in running])
        for process in [one for one in running if one.exitcode is not None]:
            running.remove(process)
            if process.exitcode < 0 and not state.code:
                say("a worker was killed; others repeat its trial", err=True)
            elif process.exitcode not in (0, *EXIT_CODES.values()) and not code:
                code = process.exitcode
                stop()  # an error, such as a full disk, would recur in the others
    return code


def _work(words: list[str]) -> NoReturn:
    from .main import run

    start_worker()
    sys.exit(run(words))


def finish(study: "Study") -> dict[str, Any]:
    """Write the best config and the report; return the outcome."""
    outcome, directory = study.summary(), study.directory
    trials, best = outcome["trials"], outcome["best"]
    if best is None:
        reasons = [one["reason"] for one in trials if one["reason"]]
        if len(reasons) == len(trials) == study.sweep.count:
            raise RunError(f"{directory}: every trial failed (the first: {reasons[0]})")
        return outcome
    file = study.config(best["values"], f'name="{study.name[:95]}-best"')
    head = (
        f"# Trial {best['number']} of {len(trials)}: {outcome['metric']} {best['value']:.6g}.\n"
        f"# Its weights: {best['model']}\n"
    )
    write_atomically(directory / BEST, (head + file.resolved()).encode())
    if not Path(best["run_dir"]).is_dir():
        again = f"train the trial again: mlpengine train {pasted(shortest(directory / BEST))}"
        raise RunError(f"{best['run_dir']}: the directory of the best trial is missing; {again}")
    outcome["pages"] = []
    if file.config.report.html:
        from mlpengine.report import REPORT_FILE, sweep_page, write_page

        from .report import sweep_data

        write_page(directory / REPORT_FILE, sweep_page(sweep_data(study, outcome)))
        outcome["pages"] = [str(directory / REPORT_FILE)]
    return outcome


def sweep_text(study: "Study", outcome: dict[str, Any]) -> str:
    """Return the best trials as a table, and the paths of the results."""
    from .trials import short

    trials, best, count = outcome["trials"], outcome["best"], study.sweep.count
    lines = []
    if best:
        done = [one for one in trials if one["value"] is not None]
        done.sort(key=lambda one: (study.sign * one["value"], one["number"]))
        titles = ["trial", study.sweep.metric, *study.sweep.space]
        rows = [
            [str(one["number"]), short(one["value"]), *map(short, one["values"].values())]
            for one in done[:PRINTED_TRIALS]
        ]
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        lines += [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in (titles, *rows)
        ]
        lines.append(f"the best {PRINTED_TRIALS} are shown\n" * (len(done) > PRINTED_TRIALS))
    states = Counter(one["state"] for one in trials)
    counts = ", ".join(f"{number:,} {state}" for state, number in states.items())
    lines.append(f"{plural(len(trials), 'trial')} of {count:,}: {counts or 'none has begun'}")
    if best:
        lines += [
            f"the best is trial {best['number']}; its weights:",
            f"{shortest(Path(best['model']))}",
            f"mlpengine train {pasted(shortest(Path(best['config'])))} gives the same weights",
            *(str(shortest(Path(path))) for path in outcome["pages"]),
        ]
    if states["running"] or len(trials) < count:
        lines.append(f"resume with: mlpengine sweep --join {pasted(shortest(study.directory))}")
    return "\n".join(lines)
