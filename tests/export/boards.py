"""Small processors, simulated: what compiles for them, and what a program prints there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cortex import SCRIPT, START

WARNINGS = tuple(f"-W{name}" for name in ("all", "extra", "conversion", "shadow", "error"))


def needs(what, *programs):
    """Return the mark of a test that needs programs, which says aloud that it did not run."""
    lacking = [program for program in programs if shutil.which(program) is None]
    reason = f"NOTHING WAS TRIED ON {what}: {', '.join(lacking)} not installed"
    return pytest.mark.skipif(bool(lacking), reason=reason)


needs_avr = needs("AN AVR", "avr-gcc", "avr-g++", "simavr")
needs_arm = needs("A CORTEX-M", "arm-none-eabi-gcc", "qemu-system-arm")


def command(folder, *words):
    """Run a program without a word on stderr; return what it prints."""
    done = subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


# ---------------------------------------------------------------- AVR
FLASH, RAM = (".text", ".progmem"), (".data", ".rodata", ".bss")

AVR = """\
#include <avr/io.h>
#include <avr/interrupt.h>
#include <avr/sleep.h>
#include <stdio.h>
static int put(char c, FILE *to)
{
  (void)to;
  while (!(UCSR0A & (1 << UDRE0)));
  UDR0 = (uint8_t)c;
  return 0;
}
static FILE uart = FDEV_SETUP_STREAM(put, 0, _FDEV_SETUP_WRITE);
__attribute__((constructor)) static void begin(void)
{
  UCSR0B = 1 << TXEN0;
  TCCR1B = 2; /* counts eighths of cycles */
  stdout = &uart;
}
__attribute__((destructor)) static void end(void)
{
  cli();
  sleep_enable();
  sleep_cpu(); /* which ends simavr */
}
"""


def avr_object(folder, file, *flags, board="atmega328p"):
    """Compile a file for an AVR; return its bytes of flash and, beside those, of RAM."""
    dialect = ["avr-g++"] if file.endswith(".cpp") else ["avr-gcc", "-std=gnu99"]
    name = f"{Path(file).stem}.o"
    command(folder, *dialect, f"-mmcu={board}", "-Os", *WARNINGS, *flags, "-c", file, "-o", name)
    return size_of(folder, name)


def size_of(folder, name):
    """Return the bytes of an object or a program for an AVR: flash alone, and RAM.

    A linker puts constants, too, into RAM, with their values in flash.
    """
    lines = command(folder, "avr-size", "-A", name).splitlines()
    sections = [line.split()[:2] for line in lines if line.startswith(".")]
    sizes = [sum(int(n) for name, n in sections if name.startswith(p)) for p in (FLASH, RAM)]
    return sizes[0], sizes[1]


def on_avr(folder, *objects, board="atmega328p"):
    """Link objects with what prints; return the lines that the program writes in simavr."""
    (folder / "avr.c").write_text(AVR)
    flags = (f"-mmcu={board}", "-Os", "-Wl,-u,vfprintf", "-lprintf_flt", "-lm")
    command(folder, "avr-gcc", "avr.c", *objects, *flags, "-o", "program.elf")
    words = ["simavr", "-m", board, "-f", "16000000", "program.elf"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    plain = re.sub("\x1b\\[[0-9;]*m", "", done.stderr)
    return [line.removesuffix(".") for line in plain.splitlines()]


# ---------------------------------------------------------------- Cortex-M
MACHINES = {
    "Cortex-M4F": (
        ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
        "mps2-an386",
    ),
    "Cortex-M0": (("-mcpu=cortex-m0", "-mthumb"), "microbit"),
}


def on_arm(folder, machine, *files):
    """Compile C files for a processor; return the exit code and the output in QEMU."""
    (folder / "start.c").write_text(START)
    (folder / "board.ld").write_text(SCRIPT.format(flash=256, ram=16))
    flags, name = MACHINES[machine]
    words = ["arm-none-eabi-gcc", *flags, "-std=c99", "-Os", "-ffunction-sections", *WARNINGS]
    words += ["--specs=rdimon.specs", "-nostartfiles", "-Wl,--gc-sections", "-Tboard.ld"]
    done = subprocess.run(
        [*words, "start.c", *files, "-o", "program.elf", "-lm"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    words = ["qemu-system-arm", "-M", name, "-display", "none", "-serial", "none"]
    words += ["-monitor", "none", "-semihosting-config", "enable=on,target=native"]
    ran = subprocess.run(
        [*words, "-kernel", "program.elf"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return ran.returncode, ran.stdout
