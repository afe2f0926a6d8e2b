"""What a program needs on a Cortex-M in QEMU; `benchmarks/device.py` uses it, too."""

START = """\
#include <stdint.h>
#include <stdlib.h>
extern int main(void);
extern void initialise_monitor_handles(void);
extern uint32_t stack_top[];
void start(void)
{
#ifdef __ARM_FP
  *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* the floating-point unit */
#endif
  initialise_monitor_handles();
  exit(main());
}
static void fault(void) { exit(99); }
__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
  stack_top, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
  (void *)fault,
};
"""
"""What runs before main on a Cortex-M in QEMU, which loads all sections and clears the others."""

SCRIPT = """\
ENTRY(start)
MEMORY {{ flash (rx) : ORIGIN = 0, LENGTH = {flash}K
          ram (rwx) : ORIGIN = 0x20000000, LENGTH = {ram}K }}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.init) *(.fini) }} > flash
  .ARM.exidx : {{ *(.ARM.exidx*) }} > flash
  .data : {{ *(.data*) }} > ram
  .bss : {{ *(.bss*) *(COMMON) }} > ram
  end = .; _end = .; __end__ = .;
  stack_top = ORIGIN(ram) + LENGTH(ram);
}}
"""
"""Where the linker puts things, with `flash` and `ram` in kilobytes."""
