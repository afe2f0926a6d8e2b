"""Make the n-th system call on a run's files fail, or kill the run there, for every n; then resume.

    python benchmarks/faults.py                     # every call, in train and in train --resume
    python benchmarks/faults.py --smoke             # a sample of them, some 20 seconds

The calls are open, write, fsync, rename, mkdir and close on files below the run directory.  For
each n, the call fails with ENOSPC or EIO, or the process is killed there (also in the middle of a
write), or it gets SIGINT or SIGTERM at a write.  The command must succeed, or end with one line
that names a file and a cause, or end with the exit code of the signal.  Then the run is resumed.
It must equal an undisturbed run byte by byte, or be refused in one line because nothing was saved
yet.

A small library intercepts the calls; the C compiler builds it, and LD_PRELOAD loads it.  One
process imports mlpengine and forks for each case, so that a case takes a fraction of a second.
Without a C compiler, the exit code is 3; with --smoke, 0.
"""

import argparse
import ctypes
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

COMPARED = ("model.safetensors", "metrics.csv", "diagnostics.csv")
KINDS = ("open", "write", "fsync", "rename", "mkdir", "close")
KILL, KILL_HALFWAY, INTERRUPT, TERMINATE = -1, -2, -3, -4
AT_WRITES = {"kill halfway": KILL_HALFWAY, "SIGINT": INTERRUPT, "SIGTERM": TERMINATE}
ACTIONS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "kill": KILL, **AT_WRITES}
CODES = {"SIGINT": 130, "SIGTERM": 143}
SECONDS = 60
"""Seconds after which a command counts as hanging."""

SMOKE_CASES = 50
NOTHING_SAVED = re.compile(
    "there is nothing to resume|is not the directory of a run|there is no such run"
)

CONFIG = """\
data: {source: penguins}
model: {hidden: [4], dropout: 0.2}
training: {epochs: 3, batch_size: 32, backend: numpy, checkpoint: {every_steps: 5}}
diagnostics: {every: 3}
report: false
"""

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN, WRITE, FSYNC, RENAME, MKDIR, CLOSE, KINDS };
enum { KILL = -1, KILL_HALFWAY = -2, INTERRUPT = -3, TERMINATE = -4, FILES = 4096 };

static char root[4096];
static char ours[FILES];
static int counts[KINDS], kind, number, action;

void faults_arm(const char *path, int the_kind, int the_number, int the_action) {
    strncpy(root, path, sizeof root - 1);
    kind = the_kind, number = the_number, action = the_action;
}

int faults_count(int of) { return counts[of]; }

static int is_ours(int descriptor) {
    return root[0] && descriptor >= 0 && descriptor < FILES && ours[descriptor];
}

static int below(int directory, const char *path) {
    if (path[0] != '/') return is_ours(directory);
    return root[0] && strncmp(path, root, strlen(root)) == 0;
}

/* Count a call; 1 where it is the one that must fail. */
static int chosen(int of) {
    if (++counts[of] != number || of != kind) return 0;
    if (action == KILL) kill(getpid(), SIGKILL);
    if (action == INTERRUPT || action == TERMINATE) {
        kill(getpid(), action == INTERRUPT ? SIGINT : SIGTERM);
        return 0;
    }
    errno = action;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CHECKED(of, condition) do { if ((condition) && chosen(of)) return -1; } while (0)

static int noted(int descriptor, int directory, const char *path) {
    if (descriptor >= 0 && descriptor < FILES) ours[descriptor] = below(directory, path);
    return descriptor;
}

#define MODE int mode; va_list more; va_start(more, flags); mode = va_arg(more, int); va_end(more)
int open(const char *path, int flags, ...) {
    MODE;
    CHECKED(OPEN, below(AT_FDCWD, path));
    return noted(NEXT(open)(path, flags, mode), AT_FDCWD, path);
}
int open64(const char *path, int flags, ...) {
    MODE;
    CHECKED(OPEN, below(AT_FDCWD, path));
    return noted(NEXT(open64)(path, flags, mode), AT_FDCWD, path);
}
int openat(int directory, const char *path, int flags, ...) {
    MODE;
    CHECKED(OPEN, below(directory, path));
    return noted(NEXT(openat)(directory, path, flags, mode), directory, path);
}
int openat64(int directory, const char *path, int flags, ...) {
    MODE;
    CHECKED(OPEN, below(directory, path));
    return noted(NEXT(openat64)(directory, path, flags, mode), directory, path);
}
ssize_t write(int descriptor, const void *data, size_t size) {
    if (is_ours(descriptor) && chosen(WRITE)) {
        if (action == KILL_HALFWAY) {
            NEXT(write)(descriptor, data, size / 2);
            kill(getpid(), SIGKILL);
        }
        return -1;
    }
    return NEXT(write)(descriptor, data, size);
}
int fsync(int descriptor) {
    CHECKED(FSYNC, is_ours(descriptor));
    return NEXT(fsync)(descriptor);
}
int rename(const char *from, const char *to) {
    CHECKED(RENAME, below(AT_FDCWD, to));
    return NEXT(rename)(from, to);
}
int renameat(int before, const char *from, int after, const char *to) {
    CHECKED(RENAME, below(after, to));
    return NEXT(renameat)(before, from, after, to);
}
int mkdir(const char *path, mode_t mode) {
    CHECKED(MKDIR, below(AT_FDCWD, path));
    return NEXT(mkdir)(path, mode);
}
int mkdirat(int directory, const char *path, mode_t mode) {
    CHECKED(MKDIR, below(directory, path));
    return NEXT(mkdirat)(directory, path, mode);
}
int close(int descriptor) {
    int fails = is_ours(descriptor) && chosen(CLOSE);
    if (descriptor >= 0 && descriptor < FILES) ours[descriptor] = 0;
    int result = NEXT(close)(descriptor);  /* as in Linux, it is closed even where it fails */
    if (fails) errno = action;
    return fails ? -1 : result;
}
"""


class Fault(NamedTuple):
    """The n-th call of a kind, and what happens there."""

    kind: str
    number: int
    action: str

    def __str__(self) -> str:
        return f"{self.kind} {self.number} {self.action}"


class Ended(NamedTuple):
    """The ending of a command: its exit code (negative: the signal) and its output."""

    code: int
    text: str


NONE = Fault("open", 0, "EIO")


class Commands:
    """Runs the command line in forked child processes, each with one fault."""

    def __init__(self, folder: Path) -> None:
        from mlpengine_cli import main

        self.main, self.folder = main.main, folder
        config = folder / "c.yaml"
        config.write_text(CONFIG)
        with redirect_stdout(StringIO()):  # children inherit the imported modules
            main.run(["train", str(config), "--out", str(folder / "imports"), "-q"])
        self.shim = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def run(self, run: Path, fault: Fault, *arguments: object) -> tuple[Ended, list[int]]:
        """Run a command with its files below `run`; return its ending and the calls by kind."""
        log, counted = self.folder / "log", self.folder / "counts"
        log.unlink(missing_ok=True)
        counted.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            self._child(run, fault, [str(argument) for argument in arguments], log, counted)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        counts = list(map(int, counted.read_text().split())) if counted.exists() else []
        return Ended(status, log.read_text()), counts

    def _child(
        self, run: Path, fault: Fault, arguments: list[str], log: Path, counted: Path
    ) -> None:
        signal.alarm(SECONDS)
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        for number in (1, 2):
            os.dup2(output, number)
        kind, action = KINDS.index(fault.kind), ACTIONS[fault.action]
        code = 99
        try:
            self.shim.faults_arm(os.fsencode(run), kind, fault.number, action)
            self.main(arguments)
        except SystemExit as ending:
            code = int(ending.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            self.shim.faults_arm(b"", 0, 0, 0)
            sys.stdout.flush()
            counted.write_text(" ".join(str(self.shim.faults_count(i)) for i in range(len(KINDS))))
            os._exit(code)


def wrong_ending(ended: Ended, fault: Fault, run: Path) -> str:
    """Return the problem with the ending of a command that had a fault; "" if it is right."""
    if ended.code == -signal.SIGKILL:
        return "" if fault.action.startswith("kill") else "was killed"
    if ended.code and ended.code == CODES.get(fault.action):
        return "" if "Traceback" not in ended.text else ended.text
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}: {ended.text.strip()}"
    errors = [line for line in ended.text.splitlines() if line.startswith("error")]
    if "Traceback" in ended.text or "Exception" in ended.text:
        return ended.text
    cause = os.strerror(ACTIONS[fault.action]) if ended.code else ""
    if ended.code and (len(errors) != 1 or str(run) not in errors[0] or cause not in errors[0]):
        return f"the error must be one line with file and cause: {ended.text.strip()}"
    return ""


def differing(run: Path, whole: Path) -> str:
    """Return the files that differ between two runs, and unfinished files."""
    names = [
        name
        for name in COMPARED
        if not (run / name).exists() or (run / name).read_bytes() != (whole / name).read_bytes()
    ]
    left = [path.name for path in run.rglob(".tmp-*")]
    return " and ".join(
        [*([f"differs in {', '.join(names)}"] if names else []), *(f"left {n}" for n in left)]
    )


def after(commands: Commands, config: Path, run: Path, whole: Path) -> str:
    """Resume a run after a fault, or begin it again; return the problem, or ""."""
    ended, _ = commands.run(run, NONE, "train", "--resume", run, "-q")
    if ended.code in (1, 2) and NOTHING_SAVED.search(ended.text):
        shutil.rmtree(run, ignore_errors=True)
        ended, _ = commands.run(run, NONE, "train", config, "--out", run, "-q")
    if ended.code:
        return f"resuming: exit code {ended.code}: {ended.text.strip()}"
    return differing(run, whole)


class Gauntlet:
    """All cases: a fault in a new run, or in a resumed run."""

    def __init__(self, folder: Path, commands: Commands) -> None:
        self.folder, self.commands = folder, commands
        self.config, self.whole = folder / "c.yaml", folder / "whole"
        self.half = folder / "half"
        ended, self.counts = commands.run(
            self.whole, NONE, "train", self.config, "--out", self.whole, "-q"
        )
        if ended.code:
            raise SystemExit(f"the whole run: exit code {ended.code}: {ended.text}")
        middle = Fault("fsync", self.counts[KINDS.index("fsync")] // 2, "kill")
        commands.run(self.half, middle, "train", self.config, "--out", self.half, "-q")
        run = self._copy("count")
        ended, self.more = commands.run(run, NONE, "train", "--resume", run, "-q")
        if ended.code or differing(run, self.whole):
            raise SystemExit(f"resuming: {ended.text} {differing(run, self.whole)}")

    def cases(self) -> Iterator[tuple[str, Fault]]:
        """Return every case: command, call, number of the call, action."""
        for command, counts in (("train", self.counts), ("resume", self.more)):
            for kind, count in zip(KINDS, counts, strict=True):
                for action in ACTIONS:
                    if action in AT_WRITES and kind != "write":
                        continue
                    for number in range(1, count + 1):
                        yield command, Fault(kind, number, action)

    def check(self, command: str, fault: Fault) -> str:
        """Return the problem after a fault in `command`; "" if all is right."""
        if command == "resume":
            run = self._copy("run")
            ended, _ = self.commands.run(run, fault, "train", "--resume", run, "-q")
        else:
            run = self.folder / "run"
            shutil.rmtree(run, ignore_errors=True)
            ended, _ = self.commands.run(run, fault, "train", self.config, "--out", run, "-q")
        wrong = wrong_ending(ended, fault, run)
        if wrong or ended.code == 0:
            return wrong or differing(run, self.whole)
        return after(self.commands, self.config, run, self.whole)

    def _copy(self, name: str) -> Path:
        run = self.folder / name
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.half, run)
        return run


def by_library(options: argparse.Namespace) -> int:
    """Run all cases with the preloaded library; return the number of failures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        gauntlet = Gauntlet(folder, Commands(folder))
        cases = list(gauntlet.cases())
        total = len(cases)
        if options.smoke:
            cases = random.Random(0).sample(cases, min(SMOKE_CASES, total))
        failures = 0
        for command, fault in cases:
            wrong = gauntlet.check(command, fault)
            failures += bool(wrong)
            if wrong or options.verbose:
                print(f"{command}, {fault}: {wrong or 'identical'}", flush=True)
        calls = dict(zip(KINDS, gauntlet.counts, strict=True))
        print(f"{len(cases)} of {total} faults by a preloaded library ({calls}), {failures} failed")
        return failures


def build(folder: Path) -> Path | None:
    """Compile the library and return its path; None without a working C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source, library = folder / "faults.c", folder / "faults.so"
    source.write_text(SHIM)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr)
        return None
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--smoke", action="store_true", help="a sample of the faults")
    parser.add_argument("--verbose", action="store_true", help="a line for each fault")
    parser.add_argument("--preloaded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.preloaded:
        return 1 if by_library(options) else 0
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        if library is None:
            print("NO FAULTS WERE INJECTED: there is no C compiler that can build the library")
            return 0 if options.smoke else 3
        environment = {**os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, *sys.argv, "--preloaded"]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
